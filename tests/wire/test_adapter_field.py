import pytest

from lattice_core.errors import RequestError, UnsupportedFeatureError
from lattice_core.wire.adapter_field import read_adapter


@pytest.mark.parametrize(
    ("body", "adapter"),
    [
        ({}, None),
        ({"lora": None}, None),
        ({"lora": []}, ""),
        ({"lora": [{"id": "fr"}]}, "fr"),
        ({"lora": [{"id": "fr", "scale": 1}]}, "fr"),
        ({"lora": [{"id": "fr", "scale": 1.0}]}, "fr"),
        ({"lora": [{"id": "fr", "scale": None}]}, "fr"),
    ],
)
def test_the_field_names_one_adapter_or_none_or_leaves_it_open(body, adapter):
    assert read_adapter(body) == adapter


@pytest.mark.parametrize(
    ("value", "kind", "param", "message"),
    [
        ("fr", RequestError, "lora", r'must be an array such as \[\{"id": NAME\}\], not a string: "fr"'),
        ({"id": "fr"}, RequestError, "lora", "must be an array"),
        (["fr"], RequestError, "lora[0]", "must be an object with the adapter's name as id"),
        ([{}], RequestError, "lora[0].id", "must be the adapter's name, a string, not null"),
        ([{"id": 0}], RequestError, "lora[0].id", "not an integer: 0"),
        ([{"id": ""}], RequestError, "lora[0].id", "is empty; send an empty array for no adapter"),
        ([{"id": "fr"}, {"id": "de"}], UnsupportedFeatureError, "lora", "names 2 adapters; one per request"),
        ([{"id": "fr", "scale": 0.5}], UnsupportedFeatureError, "lora[0].scale", "is 0.5; only 1 is supported"),
        ([{"id": "fr", "scale": True}], UnsupportedFeatureError, "lora[0].scale", "is true; only 1"),
        ([{"id": "fr", "scale": "1"}], UnsupportedFeatureError, "lora[0].scale", 'is "1"; only 1'),
        ([{"id": "fr", "path": "/x"}], UnsupportedFeatureError, "lora[0]", '"path"; only id and scale'),
    ],
)
def test_anything_else_is_refused_by_name(value, kind, param, message):
    with pytest.raises(kind, match=message) as caught:
        read_adapter({"lora": value})
    assert (type(caught.value), caught.value.param) == (kind, param)
