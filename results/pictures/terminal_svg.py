"""terminal_svg.py SCREEN.txt OUT.svg: the text of a terminal as a picture."""
import sys
from html import escape

WIDTH, HEIGHT, LEFT, TOP = 7.8, 18, 16, 40
with open(sys.argv[1], encoding="utf-8") as f:
    lines = f.read().rstrip("\n").split("\n")
columns = max(map(len, lines)) + 2
width, height = round(2 * LEFT + columns * WIDTH), TOP + len(lines) * HEIGHT + 12
with open(sys.argv[2], "w", encoding="utf-8") as f:
    f.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">\n')
    f.write(f'<rect width="{width}" height="{height}" rx="8" fill="#15181c"/>\n')
    for i, colour in enumerate(("#e0605e", "#e6b84a", "#5bb25b")):
        f.write(f'<circle cx="{20 + 20 * i}" cy="18" r="6" fill="{colour}"/>\n')
    f.write('<g font-family="ui-monospace,DejaVu Sans Mono,Menlo,Consolas,monospace" font-size="13" fill="#e6e8ea">\n')
    for i, line in enumerate(lines):
        if line:
            f.write(f'<text x="{LEFT}" y="{TOP + i * HEIGHT + 12}" textLength="{len(line) * WIDTH:.1f}" xml:space="preserve">{escape(line)}</text>\n')
    f.write("</g>\n</svg>\n")
