"""``python -m docs.generator``: writes the reference pages, and removes old ones."""

from __future__ import annotations

from docs.generator.files import REFERENCE, ROOT, files


def main() -> None:
    """Bring the files up to date."""
    wanted = files()
    for path in sorted(REFERENCE.glob("*.md")):
        if path not in wanted:
            path.unlink()
    REFERENCE.mkdir(exist_ok=True)
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
