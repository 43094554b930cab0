"""Where feedline attaches to stock libraries. Every tap fails open: what it cannot attach to is named, and the training goes on."""
