"""Killing whoever is at the other end of a connection: what a poisonous answer would do to its reader."""

from app.eval.peers import kill_peer, peer

__all__ = ["kill_peer", "peer"]
