"""The four-index distortion sum, one file per method."""
