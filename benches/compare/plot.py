"""Bars as a picture: the median's length, with the least and the most marked."""

import html
import statistics

# All lengths are pixels. Colours stand out from white and from black alike; each bar has a label
# next to it.
WIDTH, LEFT, RIGHT = 760, 236, 676
ROW, BAR = 22, 12
INK, BLUE, GREEN, RED = "#767e87", "#3b82f6", "#2c9c4b", "#dc4f4a"


def colour_of(name):
    return INK if "baseline" in name else BLUE if name.startswith("Weir") else RED


def label(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"


def draw(title, panels):
    """An SVG of panels, each a title and its bars."""
    body, y = [], 44
    for name, bars in panels:
        body.append(f'<text x="{LEFT}" y="{y}" font-weight="600">{html.escape(name)}</text>')
        y += 12
        most = max(max(bar.values) for bar in bars) or 1
        for bar in bars:
            body += draw_bar(bar, y, most)
            y += ROW
        y += 26
    height = y - 20
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="{INK}" role="img">'
    )
    title = html.escape(title)
    heading = f'<title>{title}</title>\n<text x="16" y="20" font-size="14" font-weight="600">{title}</text>'
    return "\n".join([head, heading, *body, "</svg>"]) + "\n"


def draw_bar(bar, y, most):
    def x(value):
        return round(LEFT + value * (RIGHT - LEFT) / most, 1)

    middle, least, top = statistics.median(bar.values), min(bar.values), max(bar.values)
    centre, colour = y + BAR / 2, f'fill="{colour_of(bar.name)}" opacity=".75"'
    drawn = [
        f'<text x="{LEFT - 8}" y="{y + 10}" text-anchor="end">{html.escape(bar.name)}</text>',
        f'<rect x="{LEFT}" y="{y}" width="{round(x(middle) - LEFT, 1)}" height="{BAR}" rx="2" {colour}/>',
        f'<text x="{x(top) + 6}" y="{y + 10}">{label(middle)}</text>',
    ]
    if least < top:
        path = f"M{x(least)} {centre}H{x(top)}M{x(least)} {y + 2}v{BAR - 4}M{x(top)} {y + 2}v{BAR - 4}"
        drawn.insert(2, f'<path stroke="{INK}" stroke-width="1.4" d="{path}"/>')
    return drawn
