"""What the jobs share: the Spark session, Java, progress, counters and failures."""
