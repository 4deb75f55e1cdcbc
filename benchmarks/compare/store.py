"""Storage of finished rows in a JSON file, so that an interrupted run can resume."""

import json
import os
from pathlib import Path


class Store:
    """Rows by name, each with the machine that it was measured on."""

    def __init__(self, path):
        self.path = Path(path)
        self.rows = {}
        if self.path.exists():
            self.rows = json.loads(self.path.read_text(encoding="utf-8"))["rows"]

    def __contains__(self, name):
        row = self.rows.get(name)
        return row is not None and "skipped" not in row

    def put(self, name, row, machine):
        """Store a row. The file is replaced atomically."""
        self.rows[name] = {**row, "machine": machine}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(".part")
        text = json.dumps({"rows": dict(sorted(self.rows.items(), key=by_size))}, indent=1, allow_nan=True)
        draft.write_text(text + "\n", encoding="utf-8")
        os.replace(draft, self.path)
        self.rows = dict(sorted(self.rows.items(), key=by_size))

    def machines(self):
        """Return the machines of all rows, each once."""
        return list({json.dumps(row["machine"]): row["machine"] for row in self.rows.values()}.values())


def by_size(item):
    """Return the sort key of a row: by kind, then by size."""
    name, row = item
    return " ".join(name.split()[:2]), row.get("n", 0), row.get("rho", 0.0), -row.get("eps", 0.0)
