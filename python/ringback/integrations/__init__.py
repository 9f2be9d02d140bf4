"""What connects ringback to other libraries; each module needs its own extra."""
