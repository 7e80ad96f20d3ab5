"""Tests of the emulator of pyACL and of the stand-in for its compiler."""
