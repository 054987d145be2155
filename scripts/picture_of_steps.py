#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the energy of each step of a file of `harpe train-sim --log-steps`, with its phases.

    scripts/picture_of_steps.py STEPS.jsonl FIRST_ROUND_OF_THE_PLAN TITLE >picture.svg
"""
import json
import sys

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 300, 70, 20, 50, 50
COLOURS = {"highest clocks": "#888888", "learning": "#d08700", "plan": "#1a7f4b"}


def phase(step, planned):
    return "highest clocks" if step["round"] < 0 else "learning" if step["round"] < planned else "plan"


def main():
    path, planned, title = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    with open(path, encoding="utf-8") as file:
        steps = [json.loads(line) for line in file]
    highest_j = steps[0]["energy_j"]
    shares = [100 * step["energy_j"] / highest_j for step in steps]
    low = 5 * (min(shares) // 5)

    def x(i):
        return LEFT + (WIDTH - LEFT - RIGHT) * (i + 0.5) / len(steps)

    def y(share):
        return TOP + (HEIGHT - TOP - BOTTOM) * (102 - share) / (102 - low)

    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
          'font-family="sans-serif" font-size="13">')
    print(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>')
    print(f'<text x="{LEFT}" y="20" font-size="15">{title}</text>')
    for share in range(int(low), 101, 5):
        print(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(share):.1f}" y2="{y(share):.1f}" stroke="#dddddd"/>'
              f'<text x="{LEFT - 8}" y="{y(share) + 4:.1f}" text-anchor="end">{share} %</text>')
    for i in range(0, len(steps), 10):
        print(f'<text x="{x(i):.1f}" y="{HEIGHT - 30}" text-anchor="middle">{i}</text>')
    print(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">step</text>')
    for i, (step, share) in enumerate(zip(steps, shares)):
        print(f'<circle cx="{x(i):.1f}" cy="{y(share):.1f}" r="3.5" fill="{COLOURS[phase(step, planned)]}"/>')
    for i, (name, colour) in enumerate(COLOURS.items()):
        print(f'<circle cx="{LEFT + 6 + 140 * i}" cy="36" r="4" fill="{colour}"/>'
              f'<text x="{LEFT + 16 + 140 * i}" y="40">{name}</text>')
    print("</svg>")


main()
