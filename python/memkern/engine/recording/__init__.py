"""From what was taken of a case to its record: functions of plain data, which measure nothing.

It may use what is known of the host, and imports neither the extension nor what measures.
"""
