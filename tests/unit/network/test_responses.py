"""An observer of a response is told of its stations, in order, and of none that it does not come to."""

from __future__ import annotations

from minikafka.network.responses import BothObservers, PendingResponse, ResponseQueue


class Observer:
    def __init__(self) -> None:
        self.stations: list[str] = []

    def completed(self) -> None:
        self.stations.append("completed")

    def left(self) -> None:
        self.stations.append("left")

    def sent(self) -> None:
        self.stations.append("sent")


def queue() -> ResponseQueue:
    return ResponseQueue(changed=lambda: None, abandoned=lambda: None)


def observed() -> tuple[PendingResponse, Observer]:
    response, observer = PendingResponse(), Observer()
    response.observer = observer
    return response, observer


def test_a_response_that_comes_later_passes_all_stations() -> None:
    responses = queue()
    response, observer = observed()
    responses.add(response)
    assert observer.stations == []
    response.complete((b"answer",))
    assert observer.stations == ["completed", "left"]
    responses.tell_observers()
    assert observer.stations == ["completed", "left", "sent"]
    assert responses.observers == []


def test_a_response_waits_for_the_earlier_ones_before_it_leaves() -> None:
    responses, earlier = queue(), PendingResponse()
    responses.add(earlier)
    response, observer = observed()
    responses.add(response)
    response.complete((b"second",))
    assert observer.stations == ["completed"]
    responses.tell_observers()  # nothing of it has left
    assert observer.stations == ["completed"]
    earlier.complete((b"first",))
    assert observer.stations == ["completed", "left"]


def test_a_response_that_is_never_given_has_no_stations() -> None:
    responses = queue()
    response, observer = observed()
    responses.add(response)
    responses.close()
    response.complete((b"too late",))
    assert observer.stations == []


def test_two_observers_of_one_response_are_told_the_same() -> None:
    response, first, second = PendingResponse(), Observer(), Observer()
    response.observer = BothObservers(first, second)
    responses = queue()
    responses.add(response)
    response.complete([b"answer"])
    responses.tell_observers()
    assert first.stations == second.stations == ["completed", "left", "sent"]
