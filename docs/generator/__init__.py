"""The reference pages, written from what the code declares and kept as files.

``python -m docs.generator`` writes ``docs/reference/*.md``; a test holds the committed files equal to what is
generated. So nobody edits the pages, and a property, a metric or an option cannot lack its line.
"""
