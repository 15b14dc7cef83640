"""Numbers as people read them."""


def whole(number):
    return f"{number:,.0f}"


def table(heads, rows):
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
