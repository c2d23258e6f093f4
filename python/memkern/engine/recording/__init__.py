"""From what was taken of a case to its record: functions of plain data, which measure nothing."""
