"""The JSON Schema accepts what is printed, refuses other things, and only grows."""

import json
from pathlib import Path

import jsonschema
import pytest
from merit_records import results

from memkern import cli
from memkern.formats.json_schema import json_schema
from memkern.formats.values import jsonable
from memkern.spec.columns import COLUMNS

PUBLISHED = Path(__file__).with_name("columns_of_schema_1.txt").read_text().split("\n")[:-1]


def validate(document):
    jsonschema.Draft202012Validator(json_schema()).validate(document)


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(json_schema())


def test_printed_records_and_verdicts_fit(capsys):
    assert cli.main(["loops", "-k", "copy,dot", "-n", "5000", "--runs", "2", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    validate(printed)
    finding = {"subject": "clock", "state": "note", "text": "It varies.", "advice": ""}
    validate({"verdict": "fit", "findings": [finding], "records": printed})
    # Readers of a later version find names that they do not know.
    validate([{**printed[0], "a_later_column": 1.5}])


@pytest.mark.parametrize(
    "change", [{"threads": "two"}, {"valid": 1}, {"time_min_s": "1 s"}, {"later": [1]}]
)
def test_other_types_are_refused(change):
    (row, *_) = jsonable(results().records)
    row = {name: None for name in COLUMNS} | row
    validate([row])
    with pytest.raises(jsonschema.ValidationError):
        validate([{**row, **change}])
    with pytest.raises(jsonschema.ValidationError):
        validate([{name: value for name, value in row.items() if name != "kernel"}])


def test_no_published_column_is_missing_or_has_another_type():
    now = {f"{column.name} {column.type}" for column in COLUMNS.values()}
    assert len(PUBLISHED) > 200
    assert set(PUBLISHED) <= now


def test_the_schema_is_printed(capsys):
    assert cli.main(["columns", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()
    assert cli.main(["columns", "--schema", "kernel"]) == 2
