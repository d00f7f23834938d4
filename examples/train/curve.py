"""A loss curve as SVG."""

from __future__ import annotations

WIDTH, HEIGHT, LEFT, BOTTOM = 640, 320, 56, 40


def draw(losses: list[float]) -> str:
    """One polyline over the steps from 1, with axes from 0."""
    top = max(losses) * 1.05
    across, up = WIDTH - LEFT - 16, HEIGHT - BOTTOM - 16

    def x(step: float) -> float:
        return LEFT + across * step / max(1, len(losses))

    def y(loss: float) -> float:
        return HEIGHT - BOTTOM - up * loss / top

    points = " ".join(f"{x(at + 1):.1f},{y(loss):.1f}" for at, loss in enumerate(losses))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for tick in range(int(top) + 1):
        parts.append(f'<path d="M{LEFT} {y(tick):.1f}h{across}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick}</text>')
    for step in (len(losses) * part // 4 for part in range(5)):
        place = f'x="{x(step):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle"'
        parts.append(f"<text {place}>{step}</text>")
    parts += [
        f'<polyline points="{points}" fill="none" stroke="#1f6fb2" stroke-width="1.5"/>',
        f'<text x="{LEFT + across / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">step</text>',
        f'<text x="{LEFT + 8}" y="14">loss per byte, in nats</text>',
        "</svg>\n",
    ]
    return "\n".join(parts)
