-- Run once, when the data folder is made.
CREATE EXTENSION pystachio;
