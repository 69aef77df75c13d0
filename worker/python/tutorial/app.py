"""Unpacks 200 pictures at once. Each fiftieth is made to crash the library."""

import asyncio
import collections
import pathlib

from offload import JobError, Pool

GOOD = bytes([16, 0, 200] * 16)  # 16 runs of 16 pixels
CRAFTED = bytes([255, 255, 200] * 1000)  # 1,000 runs of 65,535 pixels


async def unpack(pool, number):
    try:
        pixels = await pool.call("unpack", CRAFTED if number % 50 == 0 else GOOD, timeout=30)
        return f"{len(pixels)} pixels"
    except JobError as error:
        return str(error)


async def main():
    async with Pool(worker=pathlib.Path(__file__).with_name("worker.py"), workers=2) as pool:
        answers = await asyncio.gather(*(unpack(pool, number) for number in range(200)))
    for answer, count in collections.Counter(answers).items():
        print(f"{count:4} x {answer}")


asyncio.run(main())
