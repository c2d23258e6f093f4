"""Measurements of many cases in rounds, their plan for a limited time, and their files.

It may use all packages of the engine.
"""
