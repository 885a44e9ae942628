"""``python -m grafana.generator``: writes the dashboards and the rules, and removes old dashboards."""

from __future__ import annotations

from grafana.generator.files import DASHBOARDS, ROOT, files


def main() -> None:
    """Bring the files up to date."""
    wanted = files()
    for path in sorted(DASHBOARDS.glob("*.json")):
        if path not in wanted:
            path.unlink()
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
