# Two trainings, one after the other, the second from another folder and in the background.
set -e
python train.py first 6
mkdir -p elsewhere
(cd elsewhere && python ../train.py second 9) &
wait $!
