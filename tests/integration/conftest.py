from tests.clock import clock

__all__ = ["clock"]
