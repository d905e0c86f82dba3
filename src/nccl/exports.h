/* The functions of the table that no header of NCCL's for hosts declares. */
#ifndef WEFT_NCCL_EXPORTS_H
#define WEFT_NCCL_EXPORTS_H

#include "nccl/handle.h"
#include "nccl/table.h"

/* Tells this library from NVIDIA's (comm/nccl/load.c looks for it by name). */
extern const char weft_is_nccl;

weft_nccl_team_t ncclTeamWorld(ncclComm_t comm);
weft_nccl_team_t ncclTeamLsa(ncclComm_t comm);
weft_nccl_team_t ncclTeamRail(ncclComm_t comm);
weft_nccl_team_t ncclTeamCft(ncclComm_t comm, int mode);
weft_nccl_team_t ncclTeamCftMultimem(ncclComm_t comm);
int ncclTeamRankToWorld(ncclComm_t comm, weft_nccl_team_t team, int rank);
int ncclTeamRankToLsa(ncclComm_t comm, weft_nccl_team_t team, int rank);
int ncclLLA2ACalcSlots(int most, int bytes);

#endif
