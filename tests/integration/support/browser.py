"""A page in headless Chromium as a person uses it: keys, clicks, the size of the window, light and dark.

It is driven by the DevTools protocol over the pipe that Chromium has for it, JSON that ends with a zero byte:
no library more, and no port that others could find. Time is real. What goes wrong in the page's script, and
what its policy forbids, is kept in ``errors``, with which a test that uses ``open_browser`` fails.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

ANSWER_TIMEOUT_S = 60.0
WAIT_TIMEOUT_S = 60.0
CLICKS_MAX = 50
ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""A picture comes in one."""

_KEYS = {
    "Tab": ("Tab", 9, ""),
    "Enter": ("Enter", 13, "\r"),
    "Escape": ("Escape", 27, ""),
    "Space": (" ", 32, " "),
    "ArrowDown": ("ArrowDown", 40, ""),
}
_SHIFT = 8

_AIM_AT = """(selector, text) => {
  const found = [...document.querySelectorAll(selector)]
    .find((each) => each.checkVisibility() && each.textContent.includes(text));
  if (!found) return null;
  found.scrollIntoView({ block: "center", inline: "center" });
  const box = found.getBoundingClientRect();
  window.hasHit = false;
  window.aim?.abort();
  window.aim = new AbortController();
  for (const kind of ["mousedown", "mouseup", "click"]) {
    addEventListener(kind, seen, { capture: true, signal: window.aim.signal });
  }
  function seen(event) {
    if (event.type === "mousedown") window.hasHit = found.contains(event.target);
    if (window.hasHit) return;
    event.stopImmediatePropagation();
    event.preventDefault();
  }
  return [box.x + box.width / 2, box.y + box.height / 2];
}"""
"""Where to click. ``hasHit`` is then whether the click met the element, which the page may have moved since:
a click that did not is kept from what it met."""
_CHOOSE = """(selector, value) => {
  const control = document.querySelector(selector);
  if (![...(control?.options ?? [])].some((each) => each.value === value)) return false;
  control.value = value;
  for (const kind of ["input", "change"]) control.dispatchEvent(new Event(kind, { bubbles: true }));
  return true;
}"""


class BrowserPage:
    """The one page of a browser."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._number = 0
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._session: str | None = None
        self.errors: list[str] = []

    async def receive(self) -> None:
        """Until the browser has gone."""
        while True:
            try:
                told = json.loads((await self._reader.readuntil(b"\0"))[:-1])
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            waiting = self._waiting.pop(told.get("id", 0), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(told)
            self._note(told.get("method", ""), told.get("params", {}))
        for waiting in self._waiting.values():
            waiting.cancel()

    def _note(self, event: str, told: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif event == "Log.entryAdded" and told["entry"]["source"] == "security":
            self.errors.append(told["entry"]["text"])

    async def send(self, method: str, **arguments: Any) -> dict[str, Any]:
        """One command of the protocol. AssertionError: the browser refuses it."""
        self._number += 1
        number = self._number
        command = {"id": number, "method": method, "params": arguments}
        if self._session is not None:
            command["sessionId"] = self._session
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._writer.write(json.dumps(command).encode() + b"\0")
        await self._writer.drain()
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            told = await answer
        assert "error" not in told, f"{method}: {told['error']}"
        result: dict[str, Any] = told["result"]
        return result

    async def begin(self) -> None:
        """Take hold of the page."""
        targets = (await self.send("Target.getTargets"))["targetInfos"]
        target = next(each["targetId"] for each in targets if each["type"] == "page")
        attached = await self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            await self.send(f"{domain}.enable")

    async def open(self, url: str) -> None:
        """Go there, also when only the hash is another."""
        await self.send("Page.navigate", url=url)

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression of JavaScript."""
        told = await self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    async def wait(self, expression: str, what: str = "") -> Any:
        """Until an expression is true; its value."""
        try:
            async with asyncio.timeout(WAIT_TIMEOUT_S):
                while not (value := await self.evaluate(expression)):  # noqa: ASYNC110 - in another process
                    await asyncio.sleep(0.05)
        except TimeoutError:
            text = await self.evaluate("document.body.innerText")
            raise AssertionError(f"not seen: {what or expression}\n{self.errors}\n{text}") from None
        return value

    async def wait_for_text(self, text: str, selector: str = "main") -> None:
        await self.wait(
            f"document.querySelector({json.dumps(selector)})?.innerText.includes({json.dumps(text)})",
            f"{text!r} in {selector}",
        )

    async def rows(self, table: str) -> list[list[str]]:
        """The text of a table's body."""
        found: list[list[str]] = await self.evaluate(
            f"[...(document.getElementById({json.dumps(table)})?.rows ?? [])]"
            ".map((row) => [...row.cells].map((cell) => cell.textContent))"
        )
        return found

    async def wait_for_row(self, table: str, *start: str) -> list[str]:
        """The first row of a table that begins with these texts, once there is one."""
        wanted = json.dumps(list(start))
        row: list[str] = await self.wait(
            f"[...(document.getElementById({json.dumps(table)})?.rows ?? [])]"
            ".map((row) => [...row.cells].map((cell) => cell.textContent))"
            f".find((row) => {wanted}.every((text, index) => row[index] === text))",
            f"a row of {table} that begins with {start}",
        )
        return row

    async def click(self, selector: str, *, text: str = "") -> None:
        """With the mouse, on the middle of the first element that has this text, once it is there."""
        aim = f"({_AIM_AT})({json.dumps(selector)}, {json.dumps(text)})"
        for _ in range(CLICKS_MAX):
            x, y = await self.wait(aim, f"{selector} {text}")
            for kind in ("mousePressed", "mouseReleased"):
                await self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
            if await self.evaluate("window.hasHit") is not False:  # undefined: the click has left the page
                return
        raise AssertionError(f"{selector} {text} moves, or something lies over it")

    async def press(self, key: str, *, shift: bool = False, times: int = 1) -> None:
        """A key by its name, or a character."""
        name, code, text = _KEYS.get(key, (key, ord(key[0].upper()), key))
        event = {"key": name, "windowsVirtualKeyCode": code, "modifiers": _SHIFT if shift else 0}
        for _ in range(times):
            await self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
            await self.send("Input.dispatchKeyEvent", type="keyUp", **event)

    async def type(self, text: str) -> None:
        """Into what has the focus."""
        await self.send("Input.insertText", text=text)

    async def enter(self, selector: str, text: str) -> None:
        """Replace what is in a field."""
        await self.wait(f"document.querySelector({json.dumps(selector)})?.checkVisibility()", selector)
        await self.evaluate(f"document.querySelector({json.dumps(selector)}).select()")
        await self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
        await self.type(text)

    async def choose(self, selector: str, value: str) -> None:
        """One of a select's options, by its value, as the browser tells a page of it."""
        await self.wait(
            f"({_CHOOSE})({json.dumps(selector)}, {json.dumps(value)})", f"the option {value} of {selector}"
        )

    async def focused(self) -> str:
        """What has the focus: its id, or its tag and text."""
        found: str = await self.evaluate(
            "document.activeElement.id || "
            "`${document.activeElement.tagName} ${document.activeElement.textContent}`"
        )
        return found

    async def resize(self, width: int, height: int = 900) -> None:
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    async def prefer(self, scheme: str) -> None:
        """``dark`` or ``light``."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.send("Emulation.setEmulatedMedia", features=features)

    async def screenshot(self, path: Path) -> None:
        shot = await self.send("Page.captureScreenshot", format="png", optimizeForSpeed=False)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(shot["data"]))


@asynccontextmanager
async def open_browser(directory: Path, *, arguments: Sequence[str] = ()) -> AsyncIterator[BrowserPage]:
    """A browser with an empty page; ``directory`` is for its profile.

    Raises:
        AssertionError: the page's script failed, or did what its policy forbids.
    """
    its_input, commands = os.pipe()
    answers, its_output = os.pipe()
    command = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-proxy-server",
        "--hide-scrollbars",
        "--remote-debugging-pipe",
        f"--user-data-dir={directory / 'profile'}",
        "--window-size=1200,900",
        *arguments,
        "about:blank",
    ]
    process = await asyncio.create_subprocess_exec(
        "bash",  # puts the pipe's ends where Chromium looks for them
        "-c",
        f'exec "$@" 3<&{its_input} 4>&{its_output}',
        "bash",
        *command,
        pass_fds=(its_input, its_output),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    os.close(its_input)
    os.close(its_output)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=ANSWER_BYTES_MAX)
    read_end, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(answers, "rb")
    )
    write_end, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(commands, "wb")
    )
    page = BrowserPage(reader, asyncio.StreamWriter(write_end, protocol, None, loop))
    receiving = asyncio.create_task(page.receive())
    try:
        await page.begin()
        yield page
        assert not page.errors, page.errors
    finally:
        write_end.abort()
        read_end.close()
        if process.returncode is None:
            process.kill()
        await process.wait()
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)
