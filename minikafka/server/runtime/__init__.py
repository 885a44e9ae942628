"""What everything in the broker process stands on: tasks, turns on the loop, threads for files, the clock,
and the limits of the process.
"""
