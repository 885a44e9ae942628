"""The simulated disk: the file system's rules, and what is left when the power goes."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import given

from minikafka.testing.simulation.disk import (
    Mount,
    SimulatedDisk,
    SimulatedFile,
    failing,
    failing_once,
    read_only,
)
from minikafka.testing.simulation.loop import ProcessKilled

SEEDS = range(20)


def disk_and_mount(seed: int = 1) -> tuple[SimulatedDisk, Mount]:
    disk = SimulatedDisk(rng=random.Random(seed), now_ms=lambda: 1_700_000_000_000)
    mount = disk.mount()
    mount.make_directory("/data")
    disk.sync_all()
    return disk, mount


def create(mount: Mount, path: str, content: bytes) -> SimulatedFile:
    file = mount.open(path, create=True)
    file.write([content], 0)
    return file


def content_after_power_loss(
    seed: int, prepare: Callable[[Mount], object], path: str = "/data/f"
) -> bytes | None:
    """What is in the file, None when there is none."""
    disk, mount = disk_and_mount(seed)
    prepare(mount)
    disk.power_lost()
    again = disk.mount()
    return again.read_bytes(path) if again.exists(path) else None


class TestRules:
    def test_what_is_written_is_read_at_its_place(self) -> None:
        _, mount = disk_and_mount()
        file = mount.open("/data/f", create=True)
        assert file.write([b"hello ", bytearray(b"wor"), memoryview(b"ld")], 0) == 11
        file.write([b"J"], 0)
        file.write([b"!"], 13)
        assert file.read(100, 0) == b"Jello world\0\0!"
        assert file.read(3, 6) == b"wor" and file.read_cached(5, 12) == b"\0!"
        assert file.read(10, 99) == b""
        assert (file.size(), mount.size("/data/f")) == (14, 14)
        assert mount.modified_ms("/data/f") == 1_700_000_000_000
        file.truncate(5)
        file.truncate(7)
        assert mount.read_bytes("/data/f") == b"Jello\0\0"
        file.close()
        file.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            file.size()

    def test_directories_are_made_listed_and_removed(self) -> None:
        _, mount = disk_and_mount()
        mount.make_directory("/data/t-0/deep")
        mount.make_directory("/data/t-0")
        create(mount, "/data/t-0/b", b"")
        create(mount, "/data/t-0/a", b"")
        assert mount.list("/data/t-0") == ["a", "b", "deep"]
        assert mount.is_directory("/data/t-0/deep") and not mount.is_directory("/data/t-0/a")
        mount.remove_tree("/data/t-0")
        mount.remove_tree("/data/t-0")
        assert mount.list("/data") == []

    def test_a_rename_replaces_a_file_and_open_files_follow_it(self) -> None:
        _, mount = disk_and_mount()
        old = create(mount, "/data/old", b"old")
        create(mount, "/data/new", b"new")
        mount.rename("/data/old", "/data/new")
        old.write([b"!"], 3)
        assert mount.list("/data") == ["new"] and mount.read_bytes("/data/new") == b"old!"
        mount.make_directory("/data/t-0")
        create(mount, "/data/t-0/f", b"below")
        mount.rename("/data/t-0", "/data/t-0.gone-delete")
        assert mount.read_bytes("/data/t-0.gone-delete/f") == b"below"

    def test_a_removed_file_stays_readable_for_who_has_it_open(self) -> None:
        _, mount = disk_and_mount()
        file = create(mount, "/data/f", b"still")
        mount.remove("/data/f")
        mount.remove("/data/f")
        assert not mount.exists("/data/f") and file.read(10, 0) == b"still"

    @pytest.mark.parametrize(
        ("call", "kind"),
        [
            (lambda mount: mount.open("/data/missing"), FileNotFoundError),
            (lambda mount: mount.read_bytes("/data"), IsADirectoryError),
            (lambda mount: mount.list("/data/f"), NotADirectoryError),
            (lambda mount: mount.list("/missing"), FileNotFoundError),
            (lambda mount: mount.size("/data/missing"), FileNotFoundError),
            (lambda mount: mount.modified_ms("/data/missing"), FileNotFoundError),
            (lambda mount: mount.volume("/missing"), FileNotFoundError),
            (lambda mount: mount.rename("/data/missing", "/data/x"), FileNotFoundError),
            (lambda mount: mount.remove("/data"), IsADirectoryError),
            (lambda mount: mount.make_directory("/data/f/below"), NotADirectoryError),
            (lambda mount: mount.open("/data/f", read_only=True).truncate(0), OSError),
        ],
    )
    def test_mistakes_have_the_errors_of_a_real_one(
        self, call: Callable[[Mount], object], kind: type[OSError]
    ) -> None:
        _, mount = disk_and_mount()
        create(mount, "/data/f", b"")
        with pytest.raises(kind):
            call(mount)

    def test_the_volume_has_room_for_what_no_file_takes(self) -> None:
        disk, mount = disk_and_mount()
        empty = mount.volume("/data")
        assert empty.usable_bytes == empty.total_bytes
        create(mount, "/data/f", bytes(1000))
        assert mount.volume("/data") == (empty.total_bytes, empty.total_bytes - 1000)
        disk.fault = failing("statvfs")
        with pytest.raises(OSError):
            mount.volume("/data")

    def test_a_map_and_the_file_are_the_same_bytes(self) -> None:
        _, mount = disk_and_mount()
        file = create(mount, "/data/index", b"abc")
        view = file.map(8)
        view[4:6] = b"xy"
        file.write([b"Z"], 0)
        assert bytes(view) == b"Zbc\0xy\0\0" == mount.read_bytes("/data/index")
        view.release()
        file.truncate(2)
        assert mount.size("/data/index") == 2
        with pytest.raises(TypeError):
            mount.open("/data/index", read_only=True).map(2)[0] = 1  # type: ignore[index]

    def test_a_lock_is_held_once_and_goes_with_its_process(self) -> None:
        disk, mount = disk_and_mount()
        lock = mount.lock("/data/.lock")
        with pytest.raises(BlockingIOError):
            mount.lock("/data/.lock")
        lock.release()
        mount.lock("/data/.lock")
        disk.process_killed()
        disk.mount().lock("/data/.lock")


class TestKill:
    def test_a_killed_process_loses_nothing_that_it_wrote(self) -> None:
        disk, mount = disk_and_mount()
        file = create(mount, "/data/f", b"written")
        view = file.map(10)
        view[7:] = b"!!!"
        mount.rename("/data/f", "/data/g")
        disk.process_killed()
        assert disk.mount().read_bytes("/data/g") == b"written!!!"

    def test_and_changes_nothing_more(self) -> None:
        disk, mount = disk_and_mount()
        file = create(mount, "/data/f", b"written")
        view = file.map(7)
        disk.process_killed()
        for touch in (
            lambda: file.write([b"ghost"], 0),
            lambda: file.truncate(0),
            lambda: mount.remove("/data/f"),
            lambda: mount.exists("/data/f"),
            file.fsync,
        ):
            with pytest.raises(ProcessKilled):
                touch()
        view[0:5] = b"ghost"
        again = disk.mount()
        assert again.read_bytes("/data/f") == b"written"
        again.open("/data/f").truncate(3)

    def test_nor_does_it_see_or_hinder_what_happens_to_a_file_that_it_only_reads(self) -> None:
        disk, mount = disk_and_mount()
        create(mount, "/data/f", b"written")
        view = mount.open("/data/f", read_only=True).map(7)
        disk.process_killed()
        disk.mount().open("/data/f").write([b"changed, and longer"], 0)
        assert bytes(view) == b"written"


class TestPowerLoss:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_what_was_synced_with_its_name_is_there(self, seed: int) -> None:
        def prepare(mount: Mount) -> None:
            file = create(mount, "/data/f", b"s" * 10_000)
            file.fsync()
            mount.sync_directory("/data")
            file.write([b"u" * 10_000], 10_000)

        content = content_after_power_loss(seed, prepare)
        assert content is not None and content[:10_000] == b"s" * 10_000
        assert set(content[10_000:]) <= {ord("u"), 0}

    def test_what_was_not_may_be_gone_there_or_there_in_part(self) -> None:
        def prepare(mount: Mount) -> None:
            create(mount, "/data/f", b"u" * 10_000)
            mount.sync_directory("/data")

        found = [content_after_power_loss(seed, prepare) for seed in range(60)]
        contents = [content for content in found if content is not None]
        assert len(contents) == 60, "its name was synced"
        assert b"" in contents and b"u" * 10_000 in contents
        assert any(0 < len(content) < 10_000 for content in contents), "a prefix"
        assert any(0 in content and ord("u") in content for content in contents), "with holes"

    def test_a_name_that_was_not_synced_may_be_gone_though_the_file_was(self) -> None:
        found = [
            content_after_power_loss(seed, lambda m: create(m, "/data/f", b"x").fsync()) for seed in SEEDS
        ]
        assert set(found) == {None, b"x"}

    def test_a_rename_is_there_or_not_and_the_target_never_missing(self) -> None:
        def prepare(mount: Mount) -> None:
            create(mount, "/data/f", b"old").fsync()
            mount.sync_directory("/data")
            create(mount, "/data/f.tmp", b"new").fsync()
            mount.rename("/data/f.tmp", "/data/f")

        assert {content_after_power_loss(seed, prepare) for seed in SEEDS} == {b"old", b"new"}

    @pytest.mark.parametrize("seed", SEEDS)
    def test_an_atomic_write_is_durable(self, seed: int) -> None:
        def prepare(mount: Mount) -> None:
            mount.write_atomically("/data/f", b"old")
            mount.write_atomically("/data/f", b"new")

        assert content_after_power_loss(seed, prepare) == b"new"

    def test_a_replacement_is_old_new_or_in_part(self) -> None:
        def prepare(mount: Mount) -> None:
            mount.write_atomically("/data/f", b"old")
            mount.replace("/data/f", b"new")

        found = {content_after_power_loss(seed, prepare) for seed in range(60)}
        assert {b"old", b"new", b""} <= found

    def test_a_removal_that_was_not_synced_may_be_undone(self) -> None:
        def prepare(mount: Mount) -> None:
            mount.write_atomically("/data/f", b"x")
            mount.remove("/data/f")

        assert {content_after_power_loss(seed, prepare) for seed in SEEDS} == {None, b"x"}

    def test_a_truncation_that_was_not_synced_may_be_undone(self) -> None:
        def prepare(mount: Mount) -> None:
            mount.write_atomically("/data/f", b"long content")
            mount.open("/data/f").truncate(4)

        assert {b"long content", b"long"} <= {content_after_power_loss(seed, prepare) for seed in SEEDS}

    def test_after_it_nothing_is_in_memory_until_it_is_read(self) -> None:
        disk, mount = disk_and_mount()
        mount.write_atomically("/data/f", b"x")
        disk.power_lost()
        file = disk.mount().open("/data/f")
        assert file.read_cached(1, 0) is None
        assert file.read(1, 0) == b"x" == file.read_cached(1, 0)

    def test_one_seed_is_one_outcome(self) -> None:
        def prepare(mount: Mount) -> None:
            for number in range(10):
                create(mount, f"/data/{number}", b"u" * 5_000 * number)

        def outcome(seed: int) -> list[tuple[str, bytes]]:
            disk, mount = disk_and_mount(seed)
            prepare(mount)
            disk.power_lost()
            again = disk.mount()
            return [(name, again.read_bytes(f"/data/{name}")) for name in again.list("/data")]

        assert outcome(3) == outcome(3) != outcome(4)


class TestFaults:
    def test_the_nth_write_fails_and_the_others_do_not(self) -> None:
        disk, mount = disk_and_mount()
        disk.fault = failing_once("write", "/f", errno.EIO, after=1)
        file = mount.open("/data/f", create=True)
        file.write([b"1"], 0)
        with pytest.raises(OSError, match="Input/output error"):
            file.write([b"2"], 1)
        file.write([b"3"], 1)
        assert file.read(10, 0) == b"13"

    def test_a_full_disk_takes_a_part(self) -> None:
        disk, mount = disk_and_mount()
        file = mount.open("/data/f", create=True)
        disk.fault = failing("write", code=errno.ENOSPC)
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                file.write([b"1234", b"5678"], 0)
        assert file.read(10, 0) == b"1234"

    def test_a_failed_fsync_has_lost_what_a_later_one_seems_to_save(self) -> None:
        for seed in SEEDS:
            disk, mount = disk_and_mount(seed)
            mount.write_atomically("/data/f", b"")
            file = mount.open("/data/f")
            file.write([b"x" * 100], 0)
            disk.fault = failing_once("fsync")
            with pytest.raises(OSError):
                file.fsync()
            file.fsync()
            assert file.read(100, 0) == b"x" * 100
            disk.power_lost()
            assert b"x" not in disk.mount().read_bytes("/data/f")

    def test_a_read_only_disk_is_read(self) -> None:
        disk, mount = disk_and_mount()
        file = create(mount, "/data/f", b"x")
        disk.fault = read_only
        assert file.read(1, 0) == b"x" == mount.read_bytes("/data/f")
        for change in (
            lambda: file.write([b"y"], 0),
            lambda: mount.open("/data/g", create=True),
            lambda: mount.rename("/data/f", "/data/g"),
            lambda: mount.make_directory("/data/d"),
        ):
            with pytest.raises(OSError, match="Read-only"):
                change()

    def test_a_fault_may_be_the_death_of_who_asks(self) -> None:
        disk, mount = disk_and_mount()

        def die_at_the_rename(operation: str, path: str) -> None:
            if operation == "rename":
                disk.process_killed()

        disk.fault = die_at_the_rename
        with pytest.raises(ProcessKilled):
            mount.write_atomically("/data/f", b"x")
        disk.fault = None
        assert disk.mount().list("/data") == ["f.tmp"]


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, int]]:
    step = st.one_of(
        st.tuples(st.just("append"), st.integers(1, 9_000)),
        st.tuples(st.just("sync"), st.just(0)),
        st.tuples(st.just("truncate"), st.integers(0, 9_000)),
        st.tuples(st.just("map"), st.integers(1, 9_000)),
        st.tuples(st.just("crash"), st.integers(0, 2**32)),
        st.tuples(st.just("kill"), st.just(0)),
    )
    return draw(st.lists(step, max_size=15))


@given(histories(), st.integers(0, 2**32))
def test_whatever_happens_each_byte_is_one_that_was_there_and_synced_ones_stay(
    history: list[tuple[str, int]], seed: int
) -> None:
    """A file that is appended to, cut, mapped and synced, with crashes in between, against a simple model:
    for each position the values that it may have (0 when it was never synced)."""
    disk, mount = disk_and_mount(seed)
    mount.write_atomically("/data/f", b"")
    content = b""
    synced = b""
    maybe: dict[int, set[int]] = {}
    for number, (step, argument) in enumerate(history, start=1):
        file = mount.open("/data/f")
        value = number % 255 + 1
        before = content
        if step == "append":
            file.write([bytes([value]) * argument], len(content))
            content += bytes([value]) * argument
        elif step == "truncate":
            file.truncate(min(argument, len(content)))
            content = content[:argument]
        elif step == "map" and content:
            view = file.map(len(content))
            position = argument % len(content)
            view[position] = value
            view.release()
            content = content[:position] + bytes([value]) + content[position + 1 :]
        elif step == "sync":
            file.fsync()
            synced, maybe = content, {}
        elif step == "kill":
            disk.process_killed()
            mount = disk.mount()
        elif step == "crash":
            disk.power_lost()
            mount = disk.mount()
            found = mount.read_bytes("/data/f")
            for position, byte in enumerate(found):
                allowed = maybe.get(position, set()) | {0}
                if position < len(synced):
                    allowed = maybe.get(position, set()) | {synced[position]}
                    if len(content) < len(synced) or position in maybe:
                        allowed |= {0}
                assert byte in allowed, (position, byte, allowed)
            content = synced = found
            maybe = {}
            continue
        if content != before:
            longest = max(len(content), len(before))
            for position in range(longest):
                now = content[position] if position < len(content) else 0
                then = before[position] if position < len(before) else 0
                if now != then or (position < len(content)) != (position < len(before)):
                    maybe.setdefault(position, set()).update({now, then})
        assert mount.read_bytes("/data/f") == content
