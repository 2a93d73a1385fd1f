import pytest

from zooserve import errors


def subclasses(root: type) -> set[type]:
    return {root} | {leaf for child in root.__subclasses__() for leaf in subclasses(child)}


def test_the_tree_is_written_down_in_the_public_names() -> None:
    tree = {cls.__name__ for cls in subclasses(errors.ZooserveError)}
    assert tree | {"FailedStage"} == set(errors.__all__)


def test_the_docstring_draws_every_error() -> None:
    assert errors.__doc__ is not None
    assert all(name in errors.__doc__ for name in errors.__all__)


def test_an_error_carries_the_field_at_fault_and_its_code() -> None:
    error = errors.InputTooLong("300 tokens, the model reads 256", param="input")
    assert (error.message, error.param, error.code) == (str(error), "input", "context_length_exceeded")


def test_the_code_can_be_named_by_the_raiser() -> None:
    assert errors.BadInput("no", code="missing_required_parameter").code == "missing_required_parameter"


@pytest.mark.parametrize(
    ("failed", "label"),
    [
        (errors.FailedStage("embed_encoder", "1", "error"), "embed_encoder/1"),
        (errors.FailedStage("embed_encoder", "", "error"), "embed_encoder"),
        (errors.FailedStage("", "", "error"), "unknown"),
    ],
)
def test_a_failed_stage_is_labelled_by_what_is_known(failed: errors.FailedStage, label: str) -> None:
    assert failed.label == label


def test_an_overload_says_when_to_come_back() -> None:
    with pytest.raises(errors.Overloaded) as caught:
        raise errors.Overloaded("full", retry_after_s=0.25)
    assert caught.value.retry_after_s == 0.25
