"""The scripted backend, fakes with one fault each, and the harness that runs the real engine over them."""
