"""Training in real processes: forks with the libraries loaded (`forks`), groups of them (`groups`), kills, and the runs to compare with."""
