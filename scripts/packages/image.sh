make_images() { :; }
