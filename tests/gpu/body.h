/* Before each test of label gpu: its main() is called by that of main.c, where
 * there is a device. */
#ifndef DYT_GPU_BODY_H
#define DYT_GPU_BODY_H

int dyt_gpu_body(void);
#define main dyt_gpu_body

#endif /* DYT_GPU_BODY_H */
