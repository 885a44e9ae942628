"""Sizes and durations as people read them."""

from __future__ import annotations


def format_bytes(size_bytes: float) -> str:
    """Three digits or so, in decimal units: ``950 B``, ``1.25 MB``, ``117 MB``."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(size) < 999.5 or unit == "TB":
            break
        size /= 1000
    if unit == "B" or abs(size) >= 99.95:
        return f"{size:.0f} {unit}"
    return f"{size:.1f} {unit}" if abs(size) >= 9.995 else f"{size:.2f} {unit}"


def format_rate(bytes_per_second: float) -> str:
    """``52.3 MB/s``."""
    return f"{format_bytes(bytes_per_second)}/s"


def format_duration(duration_ms: float) -> str:
    """Two units at most: ``350 ms``, ``4.2 s``, ``3 min 20 s``, ``2 h 5 min``, ``3 d 4 h``."""
    if duration_ms < 1000:
        return f"{max(duration_ms, 0):.0f} ms"
    seconds = duration_ms / 1000
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, left_seconds = divmod(round(seconds), 60)
    hours, left_minutes = divmod(minutes, 60)
    days, left_hours = divmod(hours, 24)
    if days:
        return _two(f"{days} d", left_hours, "h")
    if hours:
        return _two(f"{hours} h", left_minutes, "min")
    return _two(f"{minutes} min", left_seconds, "s")


def _two(first: str, rest: int, unit: str) -> str:
    return f"{first} {rest} {unit}" if rest else first
