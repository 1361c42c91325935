# Makes predict.svg and predict.png; in this folder: gnuplot predict.gp
set datafile separator ','
do for [kind in 'svg png'] {
if (kind eq 'svg') { set terminal svg size 1250,520 font 'sans,13' background 'white' } else {
if (strstrt(GPVAL_TERMINALS, 'pngcairo')) { set terminal pngcairo size 1250,520 font 'sans,11' } else {
set terminal png size 1250,520 } }
set output 'predict.'.kind
set multiplot layout 1,2 title "resnet18, bf16, 128 images a rank, 2 ranks a host; network within hosts measured, between hosts given\nring, error of the predicted step: -5.3 % at 2 ranks" noenhanced
only(name, value) = strcol(1) eq name ? value : NaN
set grid
set logscale x 2
set xlabel 'ranks'
set ylabel 'efficiency'
set key left bottom
plot [0.9:4500] [0:1.1] 'predict.csv' every ::1 using 2:(only('ring', $8)) title 'ring' with lines linewidth 2 linecolor '#1f77b4', \
 'predict.csv' every ::1 using 2:(only('tree', $8)) title 'tree' with lines linewidth 2 linecolor '#d62728', \
 'predict.csv' every ::1 using 2:(only('hierarchical', $8)) title 'hierarchical' with lines linewidth 2 linecolor '#2ca02c', \
 '' every ::1 using 2:(only('ring', $10)) title 'measured' with points pointtype 7 pointsize 1.2 linecolor 'black'
set logscale xy 10
set xlabel 'bytes'
set ylabel 'ms an all-reduce'
set key left top
set format x '%.0s%cB'
plot [*:*] [*:*] 'allreduce.csv' every ::1 using 3:(only('within', $4)) title 'within hosts, 2 ranks' with points pointtype 7 linecolor '#1f77b4', \
 '' every ::1 using 3:(only('within', $5)) title 'fit' with lines linecolor '#1f77b4'
set format x '%g'
unset logscale
unset multiplot
unset output
}
