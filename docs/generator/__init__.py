"""The reference pages, written from what the code declares and kept as files.

``python -m docs.generator`` writes ``docs/reference/*.md``; a test holds the committed files equal to what is
generated. So the pages are not edited by hand, and a property, a metric or an option cannot lack its line.
"""
