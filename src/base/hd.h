/* hd.h: functions that compile for host and device from one definition. */
#ifndef BASE_HD_H
#define BASE_HD_H

#ifdef __CUDACC__
#define ORDO_HD static __host__ __device__ __forceinline__
#else
#define ORDO_HD static inline
#endif

#endif
