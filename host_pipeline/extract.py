"""Fields of a page by geometry (stub being written)."""
from host_pipeline.result import Field
def extract_fields(rows, specs):
    return tuple(Field(s.name) for s in specs), []
