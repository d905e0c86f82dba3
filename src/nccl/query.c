/* What communicators and the library tell of themselves. */
#include <stdio.h>

#include "nccl/exports.h"

const char weft_is_nccl = 1;

ncclResult_t ncclGetVersion(int *version)
{
    if (!version) {
        return weft__nccl_fail(ncclInvalidArgument, "ncclGetVersion: the version is NULL");
    }
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char *ncclGetLastError(ncclComm_t comm)
{
    static __thread char text[600];
    const char *why = "";
    weft_comm_h inner = NULL;
    if (comm && weft__nccl_enter(comm, "GetLastError") == ncclSuccess) {
        inner = atomic_load(&comm->comm);
        if (inner && weft_comm_error(inner, &why) != WEFT_OK && why[0] != '\0') {
            snprintf(text, sizeof(text), "%s", why);
        } else {
            inner = NULL;
        }
        weft__nccl_leave(comm);
    }
    return inner ? text : weft__nccl_sentence();
}

static ncclResult_t query(ncclComm_t comm, const char *who, int *value_p, size_t field)
{
    weft_comm_h inner;
    if (!value_p) {
        return weft__nccl_fail(ncclInvalidArgument, "nccl%s: the result is NULL", who);
    }
    WEFT_NCCL_TRY(weft__nccl_enter_ready(comm, who, &inner));
    *value_p = *(const int *)((const char *)comm + field);
    weft__nccl_leave(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    return query(comm, "CommCount", count, offsetof(struct ncclComm, size));
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    return query(comm, "CommCuDevice", device, offsetof(struct ncclComm, device));
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    return query(comm, "CommUserRank", rank, offsetof(struct ncclComm, rank));
}

/* ---- teams: sets of ranks that NVIDIA's device headers speak of --------------------------- */

/* Every rank; and those whose memory others load from and store to, which are the same here. */
weft_nccl_team_t ncclTeamWorld(ncclComm_t comm)
{
    weft_nccl_team_t team = {0, 0, 1};
    if (weft__nccl_enter(comm, "TeamWorld") == ncclSuccess) {
        team = (weft_nccl_team_t){comm->size, comm->rank, 1};
        weft__nccl_leave(comm);
    }
    return team;
}

weft_nccl_team_t ncclTeamLsa(ncclComm_t comm)
{
    return ncclTeamWorld(comm);
}

/* One rank of every set as above: this one alone. */
weft_nccl_team_t ncclTeamRail(ncclComm_t comm)
{
    weft_nccl_team_t world = ncclTeamWorld(comm);
    return (weft_nccl_team_t){1, 0, world.size};
}

/* Hardware that is not there. */
weft_nccl_team_t ncclTeamCft(ncclComm_t comm, int mode)
{
    (void)comm;
    (void)mode;
    return (weft_nccl_team_t){0, 0, 1};
}

weft_nccl_team_t ncclTeamCftMultimem(ncclComm_t comm)
{
    return ncclTeamCft(comm, 0);
}

int ncclTeamRankToWorld(ncclComm_t comm, weft_nccl_team_t team, int rank)
{
    return ncclTeamWorld(comm).rank + (rank - team.rank) * team.stride;
}

int ncclTeamRankToLsa(ncclComm_t comm, weft_nccl_team_t team, int rank)
{
    return ncclTeamRankToWorld(comm, team, rank);
}

int ncclLLA2ACalcSlots(int most, int bytes)
{
    (void)most;
    (void)bytes;
    return 0;
}
