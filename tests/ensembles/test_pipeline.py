"""A pipeline that cannot work is refused when it is defined."""

from dataclasses import replace

import pytest

from zooserve_ensembles.pipeline import BadDefinition, Dtype, Model, Pipeline, Step, Tensor, edges

TEXT = Tensor("text", Dtype.STRING, (1,))
IDS = Tensor("ids", Dtype.INT64, (-1,))
VECTOR = Tensor("vector", Dtype.FP32, (4,))
SPLITTER = Model("splitter", inputs=(TEXT,), outputs=(IDS,), max_queue_size=8)
ENCODER = Model("encoder", inputs=(IDS,), outputs=(VECTOR,))
SPLIT = Step(SPLITTER, takes=edges("text"), gives=edges("ids"))
ENCODE = Step(ENCODER, takes=edges("ids"), gives=edges("vector"))


def pipeline(*steps: Step, outputs: tuple[Tensor, ...] = (VECTOR,), max_batch_size: int = 64) -> Pipeline:
    return Pipeline("toy", "A toy.", (TEXT,), outputs, steps, max_batch_size=max_batch_size)


def refusal(*steps: Step, outputs: tuple[Tensor, ...] = (VECTOR,), max_batch_size: int = 64) -> str:
    with pytest.raises(BadDefinition) as caught:
        pipeline(*steps, outputs=outputs, max_batch_size=max_batch_size)
    return str(caught.value)


def test_a_sound_pipeline_is_accepted() -> None:
    assert [step.model.name for step in pipeline(SPLIT, ENCODE).steps] == ["splitter", "encoder"]


def test_edges_are_named_like_the_tensors_or_renamed() -> None:
    assert edges("ids", vector="embedding") == {"ids": "ids", "vector": "embedding"}


def test_an_edge_that_nothing_gives_is_named() -> None:
    assert "encoder's input ids takes ids, which nothing gives" in refusal(ENCODE)


def test_an_output_that_no_step_gives_is_named() -> None:
    assert "output score takes score" in refusal(SPLIT, ENCODE, outputs=(VECTOR, Tensor("score", Dtype.FP32, (1,))))


def test_a_type_that_does_not_fit_is_told_from_both_sides() -> None:
    other = replace(ENCODER, inputs=(Tensor("ids", Dtype.INT32, (-1,)),))
    assert "encoder's input ids is INT32 [-1], but ids is INT64 [-1]" in refusal(SPLIT, replace(ENCODE, model=other))


def test_a_shape_that_does_not_fit_is_told() -> None:
    assert "output vector is FP32 [5], but vector is FP32 [4]" in refusal(
        SPLIT, ENCODE, outputs=(replace(VECTOR, dims=(5,)),)
    )


def test_a_varying_length_may_feed_a_fixed_one() -> None:
    fixed = replace(ENCODER, inputs=(replace(IDS, dims=(16,)),))
    assert pipeline(SPLIT, replace(ENCODE, model=fixed))


def test_a_varying_length_is_no_other_rank() -> None:
    flat = replace(ENCODER, inputs=(replace(IDS, dims=(-1, -1)),))
    assert "INT64 [-1, -1]" in refusal(SPLIT, replace(ENCODE, model=flat))


def test_a_cycle_is_told_with_its_steps() -> None:
    mill = Model("mill", inputs=(TEXT, VECTOR), outputs=(IDS,))
    turn = Step(mill, takes=edges("text", vector="again"), gives=edges("ids"))
    back = Step(ENCODER, takes=edges("ids"), gives=edges(vector="again"))
    assert "a cycle: mill -> encoder -> mill" in refusal(turn, back, outputs=())


def test_the_same_model_may_stand_in_a_pipeline_twice() -> None:
    unbounded = replace(SPLITTER, max_queue_size=0)
    first = replace(SPLIT, model=unbounded)
    again = Step(unbounded, takes=edges("text"), gives=edges(ids="others"))
    pair = Model("pair", inputs=(IDS, Tensor("others", Dtype.INT64, (-1,))), outputs=(VECTOR,))
    assert pipeline(first, again, Step(pair, takes=edges("ids", "others"), gives=edges("vector")))


def test_an_edge_that_nobody_reads_is_told() -> None:
    assert "nobody reads ids" in refusal(SPLIT, outputs=())


def test_an_input_that_nobody_reads_is_told() -> None:
    assert "nobody reads text" in refusal(outputs=())


def test_an_input_that_is_handed_straight_through_is_told() -> None:
    given = Tensor("given", Dtype.FP32, (4,))
    with pytest.raises(BadDefinition, match="nobody reads given"):
        Pipeline("toy", "A toy.", (TEXT, given), (VECTOR, given), (SPLIT, ENCODE))


def test_an_output_may_not_feed_a_step_too() -> None:
    assert "ids is an output and also a step's input" in refusal(SPLIT, ENCODE, outputs=(VECTOR, IDS))


def test_an_edge_is_given_once() -> None:
    assert "ids is given twice" in refusal(SPLIT, replace(SPLIT, model=replace(SPLITTER, name="second")), ENCODE)


def test_an_input_of_a_step_may_not_be_left_open() -> None:
    assert "encoder's input ids is left open" in refusal(SPLIT, replace(ENCODE, takes={}))


def test_a_tensor_that_the_model_lacks_is_named() -> None:
    assert "encoder has no tensor score" in refusal(SPLIT, replace(ENCODE, gives=edges("vector", "score")))


def test_a_step_may_not_take_whichever_version_is_the_latest() -> None:
    assert "encoder is pinned to version -1" in refusal(SPLIT, replace(ENCODE, version=-1))


def test_a_batch_may_not_be_larger_than_a_member_takes() -> None:
    assert "max_batch_size 65 is above splitter's 64" in refusal(SPLIT, ENCODE, max_batch_size=65)


def test_a_queue_is_bounded_at_the_entry_only() -> None:
    bounded = replace(ENCODE, model=replace(ENCODER, max_queue_size=8))
    assert "encoder bounds its queue behind another step" in refusal(SPLIT, bounded)


def test_a_queue_is_bounded_at_no_entry_if_there_are_two() -> None:
    beside = Step(Model("reader", inputs=(TEXT,), outputs=(VECTOR,)), takes=edges("text"), gives=edges("vector"))
    assert "splitter bounds its queue beside another first step" in refusal(SPLIT, beside, outputs=(VECTOR, IDS))


def test_a_bucket_that_a_member_does_not_warm_is_named() -> None:
    warmed = replace(SPLIT, model=replace(SPLITTER, buckets=(16,)))
    with pytest.raises(BadDefinition, match="splitter is not warmed at 32"):
        replace(pipeline(warmed, ENCODE), buckets=(16, 32))


def test_every_fault_is_told_at_once() -> None:
    assert refusal(SPLIT, replace(ENCODE, takes={}), max_batch_size=65).count(";") >= 2
