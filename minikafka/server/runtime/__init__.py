"""What everything in the broker process stands on: tasks, slices of the loop's time, threads for files, the
clock, and the limits of the process.
"""
