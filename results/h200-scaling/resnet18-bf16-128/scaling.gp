# Makes scaling.svg and scaling.png; in this folder: gnuplot scaling.gp
set datafile separator ','
do for [kind in 'svg png'] {
if (kind eq 'svg') { set terminal svg size 1350,430 font 'sans,13' background 'white' } else {
if (strstrt(GPVAL_TERMINALS, 'pngcairo')) { set terminal pngcairo size 1350,430 font 'sans,11' } else {
set terminal png size 1350,430 } }
set output 'scaling.'.kind
set multiplot layout 1,3 title 'resnet18, bf16, 128 images a rank at 1 rank' noenhanced
only(mode, value) = strcol(1) eq mode ? value : NaN
set grid
set xlabel 'ranks'
set key left top
set logscale xy 2
set ylabel 'images/s'
set format y '%.0f'
plot [0.9:2.2] 70038.8619 * x title 'ideal' with lines dashtype 2 linecolor 'gray', \
  'scaling.csv' every ::1 using 2:(only('strong', $17)):($4/$10*1000):($4/$7*1000) title 'strong' with yerrorlines linecolor '#1f77b4' pointtype 7, \
  'scaling.csv' every ::1 using 2:(only('weak', $17)):($4/$10*1000):($4/$7*1000) title 'weak' with yerrorlines linecolor '#d62728' pointtype 7
unset logscale y
set format y '%g'
set key left bottom
set ylabel 'efficiency'
plot [0.9:2.2] [0:1.1] 1 title 'ideal' with lines dashtype 2 linecolor 'gray', \
  'scaling.csv' every ::1 using 2:(only('strong', $18)) title 'strong' with linespoints linecolor '#1f77b4' pointtype 7, \
  'scaling.csv' every ::1 using 2:(only('weak', $18)) title 'weak' with linespoints linecolor '#d62728' pointtype 7
unset logscale x
set key left top
set ylabel 'ms a step'
set xlabel ''
set style data histograms
set style histogram rowstacked
set style fill solid 0.8
set boxwidth 0.7
set xtics rotate by -45
set yrange [0:*]
set key above maxrows 2 samplen 1.5
label(n) = strcol(1).' '.strcol(2)
plot 'scaling.csv' every ::1 using 11:xtic(label(0)) title 'data', '' every ::1 using 12 title 'forward', \
  '' every ::1 using 13 title 'backward', '' every ::1 using 14 title 'exposed', '' every ::1 using 15 title 'update'
set style data points
set key default
set xtics norotate
set yrange [*:*]
unset multiplot
unset output
}
