#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the power of all nodes over a minute from a file of `bench/run measured --curves`.

    scripts/picture_of_power.py CURVES.json TITLE >picture.svg
"""
import json
import sys

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 300, 70, 20, 50, 50
LOW_KW, HIGH_KW, SPAN_S = 340, 460, 60
SHOWN = {"measured": ("#222222", "measured"), "simulated": ("#1f6fd0", "simulated"),
         "plan": ("#1a7f4b", "simulated with the plan of the same speed")}


def main():
    path, title = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        curves = json.load(file)

    def x(second):
        return LEFT + (WIDTH - LEFT - RIGHT) * second / SPAN_S

    def y(kilowatts):
        return TOP + (HEIGHT - TOP - BOTTOM) * (HIGH_KW - kilowatts) / (HIGH_KW - LOW_KW)

    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
          'font-family="sans-serif" font-size="13">')
    print(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>')
    print(f'<text x="{LEFT}" y="20" font-size="15">{title}</text>')
    for kilowatts in range(LOW_KW, HIGH_KW + 1, 20):
        print(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(kilowatts):.1f}" '
              f'y2="{y(kilowatts):.1f}" stroke="#dddddd"/><text x="{LEFT - 8}" '
              f'y="{y(kilowatts) + 4:.1f}" text-anchor="end">{kilowatts} kW</text>')
    for second in range(0, SPAN_S + 1, 10):
        print(f'<text x="{x(second):.1f}" y="{HEIGHT - 30}" text-anchor="middle">{second} s</text>')
    legend = LEFT
    for name, (colour, text) in SHOWN.items():
        points = [(x(second), y(watts / 1e3)) for second, watts in curves[name]
                  if 0 <= second <= SPAN_S]
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        print(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        for a, b in points:
            print(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.5" fill="{colour}"/>')
        print(f'<circle cx="{legend + 6}" cy="36" r="4" fill="{colour}"/>'
              f'<text x="{legend + 16}" y="40">{text}</text>')
        legend += 40 + 8 * len(text)
    print("</svg>")


main()
