"""Decoding of list pages with any content."""

import msgspec
import pytest

from trimtab.kube.cache.list_pages import PageDecoder
from trimtab.kube.errors import KubeResponseError
from trimtab.kube.kinds.metadata import metadata_projection
from trimtab.kube.rest.resources import CONFIG_MAPS


def page(*items: object) -> bytes:
    return msgspec.json.encode({"metadata": {"resourceVersion": "42"}, "items": items or None})


def config_map_named(name: object, **more: object) -> dict[str, object]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", **more}}


@pytest.mark.parametrize(
    "malformed",
    [config_map_named(7), config_map_named("odd", labels={"a": 7}), {"metadata": None}, "no object", None],
    ids=str,
)
def test_list_pages_skips_a_malformed_object(malformed: object) -> None:
    found, version = PageDecoder(CONFIG_MAPS, metadata_projection()).decode(
        page(config_map_named("a"), malformed, config_map_named("b"))
    )
    assert [record.name for record in found] == ["a", "b"]
    assert version == "42"


def test_list_pages_reads_the_version_of_an_empty_page() -> None:
    assert PageDecoder(CONFIG_MAPS, metadata_projection()).decode(page()) == ([], "42")


def test_list_pages_skip_only_the_object_with_invalid_bytes() -> None:
    decoder = PageDecoder(CONFIG_MAPS, metadata_projection())
    found, _ = decoder.decode(
        page(config_map_named("a"), config_map_named("odd"), config_map_named("b")).replace(
            b'"odd"', b'"\xfc"', 1
        )
    )
    assert [record.name for record in found] == ["a", "b"]
    with pytest.raises(
        KubeResponseError, match=r"list of configmaps: the response is not from a Kubernetes API server"
    ):
        decoder.decode(b'{"items": [], "metadata": {"resourceVersion": "\xfc"}}')
