"""What the OpenAPI page says of bodies that are parsed by hand, and the page itself.

The page is made here, of one file: the usual one loads its scripts from the network, and a box in a
factory has none.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from host_pipeline.result import result_schema
from host_pipeline.tasks import ALIASES, TASKS

_PARAMETERS: dict[str, dict[str, Any]] = {
    "task": {"type": "string", "enum": [*TASKS, *ALIASES], "default": "spotting"},
    "fields": {"description": "names to look for: a list, or a text with commas"},
    "schema": {"type": "object", "description": "their JSON Schema"},
    "pages": {"type": "string", "example": "1-3,7"},
    "options": {"type": "object", "description": "generation settings, e.g. max_tokens"},
    "format": {"type": "string", "enum": ["json", "jsonl", "text", "markdown", "html"]},
    "stream": {"type": "boolean", "description": "each page as a JSON line when it is read"},
    "timeout_s": {"type": "number", "description": "seconds; no longer than the service's own"},
    "filename": {"type": "string"},
}
_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
                "retryable": {"type": "boolean"},
                "request_id": {"type": "string"},
            },
        }
    },
}

OCR_BODY: dict[str, Any] = {
    "parameters": [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in _PARAMETERS.items()
    ],
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "string", "format": "binary"}, **_PARAMETERS},
                }
            },
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["data"],
                    "properties": {"data": {"type": "string", "format": "byte"}, **_PARAMETERS},
                }
            },
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    },
}

OCR_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the page, or a list of pages",
        "content": {"application/json": {"schema": result_schema()}},
    },
    **{
        status: {"description": text, "content": {"application/json": {"schema": _ERROR}}}
        for status, text in {
            400: "the call is wrong",
            401: "a key is wanted",
            408: "the body did not come in time",
            413: "the body is too large",
            422: "the file cannot be read, or the model cannot do the task",
            429: "too many wait; Retry-After says when to come again",
            500: "a fault of ours, or of the model's files",
            503: "the engine is not there at the moment; try again",
            504: "the deadline passed",
        }.items()
    },
}

CHAT_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["model", "messages"],
                    "properties": {
                        "model": {"type": "string"},
                        "messages": {"type": "array", "items": {"type": "object"}},
                        "stream": {"type": "boolean"},
                        "stream_options": {"type": "object"},
                        "max_tokens": {"type": "integer"},
                        "temperature": {"type": "number"},
                        "top_p": {"type": "number"},
                        "top_k": {"type": "integer"},
                        "repetition_penalty": {"type": "number"},
                        "seed": {"type": "integer"},
                        "response_format": {"type": "object"},
                    },
                }
            }
        },
    }
}

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
section { border-top: 1px solid #8884; padding: .8rem 0; }
code, pre { font-family: ui-monospace, monospace; } td { padding: .1rem .8rem .1rem 0; }
b { font-family: ui-monospace, monospace; text-transform: uppercase; }
"""


def docs_page(document: Mapping[str, Any]) -> str:
    """An OpenAPI document as one HTML page without scripts."""
    title = html.escape(str(document["info"]["title"]))
    parts = [
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>"
        f"<p>{html.escape(str(document['info'].get('description', '')))} The same for programs: "
        '<a href="openapi.json">openapi.json</a></p>'
    ]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append(_section(path, method, operation))
    return "".join([*parts, "</body></html>"])


def _section(path: str, method: str, operation: Mapping[str, Any]) -> str:
    text = html.escape(str(operation.get("description", "")))
    bodies = operation.get("requestBody", {}).get("content", {})
    rows = [
        (p["name"], f"{p['in']}: {_kind(p.get('schema', {}))}")
        for p in operation.get("parameters", ())
    ]
    rows += [("body", kind) for kind in bodies]
    rows += [(code, r.get("description", "")) for code, r in operation["responses"].items()]
    cells = "".join(
        f"<tr><td><code>{html.escape(str(a))}</code></td><td>{html.escape(str(b))}</td></tr>"
        for a, b in rows
    )
    return (
        f"<section><h2><b>{html.escape(method)}</b> <code>{html.escape(path)}</code></h2>"
        f"<p>{text}</p><table>{cells}</table></section>"
    )


def _kind(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    return str(schema.get("description", schema.get("type", "")))
