"""The rim: HTTPS, informers, controllers, files and clocks. It decides nothing."""
