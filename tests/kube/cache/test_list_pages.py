"""What a page of a list becomes, whatever is on it."""

import msgspec
import pytest

from trimtab.kube.cache.list_pages import PageDecoder
from trimtab.kube.errors import KubeResponseError
from trimtab.kube.kinds.metadata import metadata_projection
from trimtab.kube.rest.resources import CONFIG_MAPS


def page(*items: object) -> bytes:
    return msgspec.json.encode({"metadata": {"resourceVersion": "42"}, "items": items or None})


def named(name: object, **more: object) -> dict[str, object]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", **more}}


@pytest.mark.parametrize(
    "odd", [named(7), named("odd", labels={"a": 7}), {"metadata": None}, "no object", None], ids=str
)
def test_list_pages_skips_a_malformed_object(odd: object) -> None:
    found, version = PageDecoder(CONFIG_MAPS, metadata_projection()).decode(page(named("a"), odd, named("b")))
    assert [record.name for record in found] == ["a", "b"]
    assert version == "42"


def test_list_pages_reads_the_version_of_an_empty_page() -> None:
    assert PageDecoder(CONFIG_MAPS, metadata_projection()).decode(page()) == ([], "42")


def test_list_pages_skip_only_the_object_with_invalid_bytes() -> None:
    decoder = PageDecoder(CONFIG_MAPS, metadata_projection())
    found, _ = decoder.decode(page(named("a"), named("odd"), named("b")).replace(b'"odd"', b'"\xfc"', 1))
    assert [record.name for record in found] == ["a", "b"]
    with pytest.raises(
        KubeResponseError, match=r"list of configmaps: the response is not from a Kubernetes API server"
    ):
        decoder.decode(b'{"items": [], "metadata": {"resourceVersion": "\xfc"}}')
