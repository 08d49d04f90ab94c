from app.domain.states import OPEN, TERMINAL, DeadReason, DeliveryStatus, KeyScope, Outcome, ReservationStatus


def test_a_delivery_is_either_open_or_terminal() -> None:
    assert set(DeliveryStatus) == OPEN | TERMINAL
    assert not OPEN & TERMINAL


def test_the_names_are_those_of_the_contract() -> None:
    assert [*ReservationStatus] == ["held", "confirmed", "released", "expired"]
    assert [*DeliveryStatus] == ["scheduled", "leased", "delivered", "dead", "cancelled"]
    assert [*KeyScope] == ["producer", "operator"]
    assert " ".join(Outcome) == (
        "delivered gone rejected redirected refused throttled failed unreached unknown blocked abandoned"
    )
    assert " ".join(DeadReason) == ("gone rejected redirected refused attempts_exhausted age_exhausted blocked poison")
