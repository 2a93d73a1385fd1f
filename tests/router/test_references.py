"""What a reference within a JSON schema leads to."""

import pytest

from zooserve_router.references import referred

ROOT = {"$defs": {"a b": 1, "c/d~e": 2, "list": [3, {"f": 4}], "": 5}}


@pytest.mark.parametrize(
    ("reference", "target"),
    [
        ("#", ROOT),
        ("#/$defs/a%20b", 1),
        ("#/$defs/c~1d~0e", 2),
        ("#/$defs/list/0", 3),
        ("#/$defs/list/1/f", 4),
        ("#/$defs/", 5),
        ("#/$defs/list/2", None),
        ("#/$defs/list/-1", None),
        ("#/$defs/list/x", None),
        ("#/$defs/a%20b/c", None),
        ("#/nowhere", None),
    ],
)
def test_a_reference_leads_to_what_stands_there_or_to_nothing(reference, target) -> None:
    assert referred(ROOT, reference) == target
