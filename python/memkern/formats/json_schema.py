"""The JSON Schema of what memkern prints as JSON: records, and the result of doctor."""

from __future__ import annotations

from typing import Any

from memkern.spec.columns import COLUMNS

_TYPES = {"text": "string", "integer": "integer", "real": "number", "bool": "boolean"}

# Columns that scripts rely on; every record has them, some without a value.
_ALWAYS = (
    "case_id", "repeat", "environment_id", "platform", "started", "kernel", "dtype", "threads",
    "variant", "valid", "disturbed", "bytes_B", "bytes_model_B", "time_min_s", "time_median_s",
    "bandwidth_GBps",
)  # fmt: skip


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of records and of ``memkern doctor --json``.

    Columns are added between versions, and none is removed or changes its meaning: readers should
    ignore names that they do not know. Missing values, and numbers that are not finite, are null.
    """
    columns = {
        column.name: {
            "type": [_TYPES[column.type], "null"],
            "description": f"{column.meaning}, in {column.unit}" if column.unit else column.meaning,
        }
        for column in COLUMNS.values()
    }
    finding = {name: {"type": "string"} for name in ("subject", "state", "text", "advice")}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "JSON output of memkern: an array of records, or the result of memkern doctor",
        "anyOf": [{"$ref": "#/$defs/records"}, {"$ref": "#/$defs/doctor"}],
        "$defs": {
            "record": {
                "type": "object",
                "properties": columns,
                "required": list(_ALWAYS),
                "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
            },
            "records": {"type": "array", "items": {"$ref": "#/$defs/record"}},
            "doctor": {
                "type": "object",
                "properties": {
                    "verdict": {"enum": ["fit", "fit with reservations", "disturbed"]},
                    "findings": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": finding,
                            "required": list(finding),
                        },
                    },
                    "records": {"$ref": "#/$defs/records"},
                },
                "required": ["verdict", "findings", "records"],
            },
        },
    }
