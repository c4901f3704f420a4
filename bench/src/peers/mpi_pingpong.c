/* A plain MPI ping-pong between ranks 0 and 1: mpi_pingpong BYTES REPETITIONS */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	int rank, bytes = argc > 1 ? atoi(argv[1]) : 0;
	long repetitions = argc > 2 ? atol(argv[2]) : 1;
	char *message = calloc(1, (size_t)bytes + 1);

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Barrier(MPI_COMM_WORLD);
	double begun = MPI_Wtime();
	for (long done = 0; done < repetitions; done++) {
		if (rank == 0)
			MPI_Send(message, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
		MPI_Recv(message, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (rank != 0)
			MPI_Send(message, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
	}
	double each_us = (MPI_Wtime() - begun) / repetitions / 2 * 1e6;
	if (rank == 0)
		printf("pingpong %d %ld %.4f\n", bytes, repetitions, each_us);
	MPI_Finalize();
	return 0;
}
