-- Written by make_encrypted.py: keys of files of which only the writers know.
\set key_of_footers 1ea35df81fec99bad8181bdab6159417
\set key_of_name 8c33dd6b044c3302ab9c943a8faecdec
\set key_of_amount 6bcb2b9f38713b3ee0430bc080302047
