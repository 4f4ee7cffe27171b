"""The table of all kinds of GPU that come with Tuneyard, the only place that lists them. A new kind is a new entry
(docs/extending/gpu-kind.md).

If kinds share a name (`a100`, `v100`, GeForce cards with two sizes of memory), the name without a known memory means the first one. A name
is matched in any case, with any punctuation, and with or without the vendor's words (gpu_names).
"""

from __future__ import annotations

from tuneyard.catalog.gpu_facts import Gpu, amd, nvidia

P100 = "NVIDIA Tesla P100 datasheet, October 2016"
V100 = "NVIDIA V100 datasheet, January 2020"
T4 = "NVIDIA T4 datasheet, March 2019"
TURING = "NVIDIA Turing architecture white paper, 2018 (appendix A: fp16 with fp32 accumulate)"
A100 = "NVIDIA A100 Tensor Core GPU datasheet, June 2021"
A30, A40 = "NVIDIA A30 datasheet, March 2022", "NVIDIA A40 datasheet, March 2022"
A2, A10, A16 = "NVIDIA A2 datasheet, November 2021", "NVIDIA A10 datasheet, March 2022", "NVIDIA A16 datasheet, April 2021 (per GPU)"
A10G = "NVIDIA A10G datasheet (AWS), February 2022; fp32 from 80 SMs at 1.71 GHz"
GA102 = "NVIDIA Ampere GA102 architecture white paper v2, 2021 (appendix A: fp16 with fp32 accumulate)"
GA10X = "product pages of GeForce RTX 30, 2021; peaks from SMs and boost clock as in the GA102 white paper"
RTX_A = "datasheets of NVIDIA RTX A-series, 2021 to 2022 (figures with sparsity, halved)"
L4, L40, L40S = "NVIDIA L4 datasheet, 2023", "NVIDIA L40 datasheet, 2023", "NVIDIA L40S datasheet, 2023"
AD10X = "NVIDIA Ada GPU architecture white paper v2, 2023, and product pages of GeForce RTX 40 (fp16 with fp32 accumulate)"
RTX_ADA = "datasheets of NVIDIA RTX Ada Generation, 2023 (figures with sparsity, halved)"
GB20X = "NVIDIA RTX Blackwell GPU architecture white paper v1.1, 2025 (appendix: fp16 with fp32 accumulate)"
RTX_PRO = "NVIDIA RTX PRO 6000 Blackwell datasheet, 2025; matmuls from 188 SMs at the clock of its fp32 figure"
H100 = "NVIDIA H100 Tensor Core GPU architecture white paper v1.04, 2023 (dense figures)"
H100_NVL = "NVIDIA H100 NVL datasheet, 2024 (its figures with sparsity, halved)"
H200 = "NVIDIA H200 Tensor Core GPU datasheet, November 2023 (its figures with sparsity, halved)"
GH200 = "NVIDIA GH200 Grace Hopper datasheet, 2024 (its figures with sparsity, halved)"
B200 = "NVIDIA HGX B200 in the Blackwell datasheet, 2025 (its figures with sparsity, halved)"
B100 = "NVIDIA Blackwell architecture technical brief, 2024: HGX B100 (its figures with sparsity, halved)"
GB200 = "NVIDIA GB200 NVL72 datasheet, 2025: a 72nd of it (its figures with sparsity, halved)"
MI100 = "AMD Instinct MI100 brochure, November 2020"
MI200 = "AMD Instinct MI200 series datasheet, 2022 (matrix figures; of MI250 and MI250X, half: one of two GCDs)"
MI300X, MI300A = "AMD Instinct MI300X datasheet, December 2023 (dense)", "AMD Instinct MI300A datasheet, December 2023 (dense)"
MI325X, MI350 = "AMD Instinct MI325X datasheet, October 2024 (dense)", "AMD Instinct MI350 series datasheet, June 2025 (dense)"

# fmt: off
GPU_KINDS: tuple[Gpu, ...] = (
    # NVIDIA, data centre
    nvidia("a100-80gb", "NVIDIA A100 SXM4 80GB", "sm80", memory=80, bandwidth=2039, link=600, network=200, fp32=19.5, tf32=156,
           half=312, int8=624, aliases="a100-sxm-80gb a100-sxm4-80gb a100-sxm4 a100-sxm", source=A100),
    nvidia("a100-40gb", "NVIDIA A100 SXM4 40GB", "sm80", memory=40, bandwidth=1555, link=600, network=200, fp32=19.5, tf32=156,
           half=312, int8=624, aliases="a100-sxm-40gb a100-sxm4-40gb nvidia-tesla-a100", source=A100),
    nvidia("a100-pcie-80gb", "NVIDIA A100 80GB PCIe", "sm80", memory=80, bandwidth=1935, network=25, fp32=19.5, tf32=156,
           half=312, int8=624, aliases="a100-80gb-pcie", source=A100),
    nvidia("a100-pcie-40gb", "NVIDIA A100 PCIe 40GB", "sm80", memory=40, bandwidth=1555, network=25, fp32=19.5, tf32=156,
           half=312, int8=624, aliases="a100-40gb-pcie", source=A100),
    nvidia("a800-80gb", "NVIDIA A800 SXM4 80GB", "sm80", memory=80, bandwidth=2039, link=400, network=200, fp32=19.5, tf32=156,
           half=312, int8=624, aliases="a800-sxm4-80gb a800-sxm-80gb", source=A100),
    nvidia("a30-24gb", "NVIDIA A30", "sm80", memory=24, bandwidth=933, fp32=10.3, tf32=82, half=165, int8=330, source=A30),
    nvidia("h100-80gb", "NVIDIA H100 80GB HBM3", "sm90", memory=80, bandwidth=3350, link=900, pcie=128, network=400, fp32=66.9, tf32=494.7,
           half=989.4, fp8=1978.9, int8=1978.9,
           aliases="h100-sxm h100-sxm5 h100-sxm-80gb h100-sxm5-80gb nvidia-h100-mega-80gb", source=H100),
    nvidia("h100-pcie-80gb", "NVIDIA H100 PCIe", "sm90", memory=80, bandwidth=2039, pcie=128, network=50, fp32=51.2, tf32=378, half=756,
           fp8=1513, int8=1513, aliases="h100-80gb-pcie", source=H100),
    nvidia("h100-nvl-94gb", "NVIDIA H100 NVL", "sm90", memory=94, bandwidth=3938, pcie=128, network=50, fp32=60, tf32=417.5, half=835.5,
           fp8=1670.5, int8=1670.5, source=H100_NVL),
    nvidia("h800-80gb", "NVIDIA H800 SXM5 80GB", "sm90", memory=80, bandwidth=3350, link=400, pcie=128, network=400, fp32=66.9, tf32=494.7,
           half=989.4, fp8=1978.9, int8=1978.9, aliases="h800-sxm h800-sxm5", source=H100),
    nvidia("h200-141gb", "NVIDIA H200 SXM5 141GB", "sm90", memory=141, bandwidth=4800, link=900, pcie=128, network=400, fp32=67, tf32=494.5,
           half=989.5, fp8=1979, int8=1979, aliases="h200-sxm h200-sxm-141gb", source=H200),
    nvidia("h200-nvl-141gb", "NVIDIA H200 NVL", "sm90", memory=141, bandwidth=4800, pcie=128, network=50, fp32=60, tf32=417.5, half=835.5,
           fp8=1670.5, int8=1670.5, source=H200),
    nvidia("gh200-96gb", "NVIDIA GH200 480GB", "sm90", memory=96, bandwidth=4000, link=900, pcie=900, network=50, fp32=67, tf32=494.5,
           half=989.5, fp8=1979, int8=1979, aliases="gh200-96gb-hbm3 gh200-superchip", source=GH200),
    nvidia("gh200-144gb", "NVIDIA GH200 144G HBM3e", "sm90", memory=144, bandwidth=4900, link=900, pcie=900, network=50, fp32=67,
           tf32=494.5, half=989.5, fp8=1979, int8=1979, source=GH200),
    nvidia("b200-180gb", "NVIDIA B200 SXM 180GB", "sm100", memory=180, bandwidth=7700, link=1800, pcie=128, network=400, fp32=75, tf32=1100,
           half=2250, fp8=4500, int8=4500, aliases="b200-192gb b200-sxm b200-sxm6", source=B200),
    nvidia("b100-192gb", "NVIDIA B100 SXM 192GB", "sm100", memory=192, bandwidth=8000, link=1800, pcie=128, network=400, fp32=60, tf32=900,
           half=1750, fp8=3500, int8=3500, aliases="b100-sxm b100-sxm6", source=B100),
    nvidia("gb200-186gb", "NVIDIA GB200", "sm100", memory=186, bandwidth=8000, link=1800, pcie=450, network=200, fp32=80, tf32=1250,
           half=2500, fp8=5000, int8=5000, aliases="gb200-192gb gb200-nvl72", source=GB200),
    nvidia("l40s-48gb", "NVIDIA L40S", "sm89", memory=48, bandwidth=864, network=25, fp32=91.6, tf32=183, half=362, fp8=733, int8=733,
           source=L40S),
    nvidia("l40-48gb", "NVIDIA L40", "sm89", memory=48, bandwidth=864, network=25, fp32=90.5, tf32=90.5, half=181, fp8=362, int8=362,
           source=L40),
    nvidia("l4-24gb", "NVIDIA L4", "sm89", memory=24, bandwidth=300, fp32=30.3, tf32=60, half=121, fp8=242, int8=242, source=L4),
    nvidia("a40-48gb", "NVIDIA A40", "sm86", memory=48, bandwidth=696, fp32=37.4, tf32=74.8, half=149.7, int8=299.3, source=A40),
    nvidia("a10-24gb", "NVIDIA A10", "sm86", memory=24, bandwidth=600, fp32=31.2, tf32=62.5, half=125, int8=250, source=A10),
    nvidia("a10g-24gb", "NVIDIA A10G", "sm86", memory=24, bandwidth=600, fp32=35, tf32=35, half=70, int8=140, source=A10G),
    nvidia("a16-16gb", "NVIDIA A16", "sm86", memory=16, bandwidth=200, fp32=4.5, tf32=9, half=17.9, int8=35.9, source=A16),
    nvidia("a2-16gb", "NVIDIA A2", "sm86", memory=16, bandwidth=200, pcie=32, fp32=4.5, tf32=9, half=18, int8=36, source=A2),
    nvidia("t4-16gb", "NVIDIA T4", "sm75", memory=16, bandwidth=320, pcie=32, network=6.25, fp32=8.1, half=65, int8=130, source=T4),
    nvidia("v100-16gb", "NVIDIA V100 SXM2 16GB", "sm70", memory=16, bandwidth=900, link=300, pcie=32, fp32=15.7, half=125,
           aliases="v100-sxm2 v100-sxm v100-fhhl-16gb", source=V100),
    nvidia("v100-32gb", "NVIDIA V100 SXM2 32GB", "sm70", memory=32, bandwidth=900, link=300, pcie=32, network=50, fp32=15.7, half=125,
           aliases="v100-sxm3-32gb", source=V100),
    nvidia("v100-pcie-16gb", "NVIDIA V100 PCIe 16GB", "sm70", memory=16, bandwidth=900, pcie=32, fp32=14, half=112, source=V100),
    nvidia("v100-pcie-32gb", "NVIDIA V100 PCIe 32GB", "sm70", memory=32, bandwidth=900, pcie=32, fp32=14, half=112, source=V100),
    nvidia("v100s-32gb", "NVIDIA V100S PCIe 32GB", "sm70", memory=32, bandwidth=1134, pcie=32, fp32=16.4, half=130,
           aliases="v100s-pcie v100s-pcie-32gb", source=V100),
    nvidia("p100-16gb", "NVIDIA P100 SXM2 16GB", "sm60", memory=16, bandwidth=732, link=160, pcie=32, fp32=10.6, half=21.2,
           aliases="p100-sxm2", source=P100),
    nvidia("p100-pcie-16gb", "NVIDIA P100 PCIe 16GB", "sm60", memory=16, bandwidth=732, pcie=32, fp32=9.3, half=18.7,
           aliases="nvidia-tesla-p100", source=P100),
    # NVIDIA, workstation
    nvidia("rtx-pro-6000-96gb", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "sm120", memory=96, bandwidth=1792, pcie=128, fp32=126,
           tf32=252, half=503.8, fp8=1007.6, int8=1007.6, aliases="rtx-pro-6000-blackwell", source=RTX_PRO),
    nvidia("rtx-pro-6000-server-96gb", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "sm120", memory=96, bandwidth=1597, pcie=128,
           fp32=120, tf32=240, half=480, fp8=960, int8=960, aliases="nvidia-rtx-pro-6000", source=RTX_PRO),
    nvidia("rtx-pro-6000-max-q-96gb", "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "sm120", memory=96, bandwidth=1792,
           pcie=128, fp32=110, tf32=220, half=439, fp8=878, int8=878, source=RTX_PRO),
    nvidia("rtx-6000-ada-48gb", "NVIDIA RTX 6000 Ada Generation", "sm89", memory=48, bandwidth=960, fp32=91.1, tf32=182.1, half=364.2,
           fp8=728.5, int8=728.5, aliases="6000-ada", source=RTX_ADA),
    nvidia("rtx-5000-ada-32gb", "NVIDIA RTX 5000 Ada Generation", "sm89", memory=32, bandwidth=576, fp32=65.3, tf32=130.6, half=261.1,
           fp8=522.2, int8=522.2, source=RTX_ADA),
    nvidia("rtx-4500-ada-24gb", "NVIDIA RTX 4500 Ada Generation", "sm89", memory=24, bandwidth=432, fp32=39.6, tf32=79.2, half=158.5,
           fp8=317, int8=317, source=RTX_ADA),
    nvidia("rtx-4000-ada-20gb", "NVIDIA RTX 4000 Ada Generation", "sm89", memory=20, bandwidth=360, fp32=26.7, tf32=53.4, half=106.9,
           fp8=213.8, int8=213.8, source=RTX_ADA),
    nvidia("rtx-a6000-48gb", "NVIDIA RTX A6000", "sm86", memory=48, bandwidth=768, fp32=38.7, tf32=77.4, half=154.8, int8=309.7,
           aliases="a6000", source=RTX_A),
    nvidia("rtx-a5500-24gb", "NVIDIA RTX A5500", "sm86", memory=24, bandwidth=768, fp32=34.1, tf32=68.2, half=136.4, int8=272.8,
           aliases="a5500", source=RTX_A),
    nvidia("rtx-a5000-24gb", "NVIDIA RTX A5000", "sm86", memory=24, bandwidth=768, fp32=27.8, tf32=55.6, half=111.1, int8=222.2,
           aliases="a5000", source=RTX_A),
    nvidia("rtx-a4500-20gb", "NVIDIA RTX A4500", "sm86", memory=20, bandwidth=640, fp32=23.7, tf32=47.3, half=94.6, int8=189.2,
           aliases="a4500", source=RTX_A),
    nvidia("rtx-a4000-16gb", "NVIDIA RTX A4000", "sm86", memory=16, bandwidth=448, fp32=19.2, tf32=38.3, half=76.7, int8=153.4,
           aliases="a4000", source=RTX_A),
    nvidia("quadro-rtx-8000-48gb", "Quadro RTX 8000", "sm75", memory=48, bandwidth=672, pcie=32, fp32=16.3, half=130.5, int8=261,
           source=TURING),
    nvidia("quadro-rtx-6000-24gb", "Quadro RTX 6000", "sm75", memory=24, bandwidth=672, pcie=32, fp32=16.3, half=130.5, int8=261,
           source=TURING),
    nvidia("titan-rtx-24gb", "NVIDIA TITAN RTX", "sm75", memory=24, bandwidth=672, pcie=32, fp32=16.3, half=130.5, int8=261, source=TURING),
    # NVIDIA, GeForce: matmuls of 16-bit numbers that accumulate in fp32 run at half the rate of the tensor cores
    nvidia("rtx-5090-32gb", "NVIDIA GeForce RTX 5090", "sm120", memory=32, bandwidth=1792, pcie=128, fp32=104.8, tf32=104.8, half=209.5,
           fp8=419, int8=838, aliases="5090", source=GB20X),
    nvidia("rtx-5080-16gb", "NVIDIA GeForce RTX 5080", "sm120", memory=16, bandwidth=960, pcie=128, fp32=56.3, tf32=56.3, half=112.6,
           fp8=225.1, int8=450.2, aliases="5080", source=GB20X),
    nvidia("rtx-5070-ti-16gb", "NVIDIA GeForce RTX 5070 Ti", "sm120", memory=16, bandwidth=896, pcie=128, fp32=43.9, tf32=43.9, half=87.9,
           fp8=175.8, int8=351.5, aliases="5070-ti", source=GB20X),
    nvidia("rtx-5070-12gb", "NVIDIA GeForce RTX 5070", "sm120", memory=12, bandwidth=672, pcie=128, fp32=30.9, tf32=30.9, half=61.7,
           fp8=123.5, int8=246.9, aliases="5070", source=GB20X),
    nvidia("rtx-5060-ti-16gb", "NVIDIA GeForce RTX 5060 Ti", "sm120", memory=16, bandwidth=448, fp32=23.7, tf32=23.7, half=47.4, fp8=94.8,
           int8=189.6, aliases="5060-ti", source=GB20X),
    nvidia("rtx-4090-24gb", "NVIDIA GeForce RTX 4090", "sm89", memory=24, bandwidth=1008, fp32=82.6, tf32=82.6, half=165.2, fp8=330.3,
           int8=660.6, aliases="4090", source=AD10X),
    nvidia("rtx-4080-super-16gb", "NVIDIA GeForce RTX 4080 SUPER", "sm89", memory=16, bandwidth=736, fp32=52.2, tf32=52.2, half=104.4,
           fp8=208.9, int8=417.8, aliases="4080-super", source=AD10X),
    nvidia("rtx-4080-16gb", "NVIDIA GeForce RTX 4080", "sm89", memory=16, bandwidth=716.8, fp32=48.7, tf32=48.7, half=97.5, fp8=194.9,
           int8=389.9, aliases="4080", source=AD10X),
    nvidia("rtx-4070-ti-super-16gb", "NVIDIA GeForce RTX 4070 Ti SUPER", "sm89", memory=16, bandwidth=672, fp32=44.1, tf32=44.1, half=88.2,
           fp8=176.4, int8=352.8, aliases="4070-ti-super", source=AD10X),
    nvidia("rtx-4070-ti-12gb", "NVIDIA GeForce RTX 4070 Ti", "sm89", memory=12, bandwidth=504, fp32=40.1, tf32=40.1, half=80.2, fp8=160.4,
           int8=320.7, aliases="4070-ti", source=AD10X),
    nvidia("rtx-4070-super-12gb", "NVIDIA GeForce RTX 4070 SUPER", "sm89", memory=12, bandwidth=504, fp32=35.5, tf32=35.5, half=71,
           fp8=141.9, int8=283.9, aliases="4070-super", source=AD10X),
    nvidia("rtx-4070-12gb", "NVIDIA GeForce RTX 4070", "sm89", memory=12, bandwidth=504, fp32=29.1, tf32=29.1, half=58.3, fp8=116.6,
           int8=233.2, aliases="4070", source=AD10X),
    nvidia("rtx-4060-ti-16gb", "NVIDIA GeForce RTX 4060 Ti", "sm89", memory=16, bandwidth=288, pcie=32, fp32=22.1, tf32=22.1, half=44.1,
           fp8=88.3, int8=176.5, aliases="4060-ti", source=AD10X),
    nvidia("rtx-3090-ti-24gb", "NVIDIA GeForce RTX 3090 Ti", "sm86", memory=24, bandwidth=1008, fp32=40, tf32=40, half=80, int8=320,
           aliases="3090-ti", source=GA10X),
    nvidia("rtx-3090-24gb", "NVIDIA GeForce RTX 3090", "sm86", memory=24, bandwidth=936.2, fp32=35.6, tf32=35.6, half=71.2, int8=284.7,
           aliases="3090", source=GA102),
    nvidia("rtx-3080-ti-12gb", "NVIDIA GeForce RTX 3080 Ti", "sm86", memory=12, bandwidth=912, fp32=34.1, tf32=34.1, half=68.2, int8=272.8,
           aliases="3080-ti", source=GA10X),
    nvidia("rtx-3080-10gb", "NVIDIA GeForce RTX 3080", "sm86", memory=10, bandwidth=760, fp32=29.8, tf32=29.8, half=59.5, int8=238.1,
           aliases="3080", source=GA102),
    nvidia("rtx-3080-12gb", "NVIDIA GeForce RTX 3080", "sm86", memory=12, bandwidth=912, fp32=30.6, tf32=30.6, half=61.3, int8=245.1,
           aliases="3080", source=GA10X),
    nvidia("rtx-3070-8gb", "NVIDIA GeForce RTX 3070", "sm86", memory=8, bandwidth=448, fp32=20.3, tf32=20.3, half=40.6, int8=162.6,
           aliases="3070", source=GA102),
    nvidia("rtx-3060-12gb", "NVIDIA GeForce RTX 3060", "sm86", memory=12, bandwidth=360, fp32=12.7, tf32=12.7, half=25.5, int8=101.9,
           aliases="3060", source=GA10X),
    nvidia("rtx-2080-ti-11gb", "NVIDIA GeForce RTX 2080 Ti", "sm75", memory=11, bandwidth=616, pcie=32, fp32=13.4, half=53.8, int8=215.2,
           aliases="2080-ti", source=TURING),
    # AMD Instinct: device ids of PCI, which its node labeller and rocm-smi show, stand beside the names
    amd("mi355x-288gb", "AMD Instinct MI355X", "gfx950", memory=288, bandwidth=8000, link=1075, pcie=128, network=400, fp32=157.3,
        half=2516.6, fp8=5033.2, int8=5033.2, aliases="mi355x-oam 75a3 0x75a3", source=MI350),
    amd("mi350x-288gb", "AMD Instinct MI350X", "gfx950", memory=288, bandwidth=8000, link=1075, pcie=128, network=400, fp32=144.2,
        half=2306.9, fp8=4613.7, int8=4613.7, aliases="mi350x-oam 75a0 0x75a0", source=MI350),
    amd("mi325x-256gb", "AMD Instinct MI325X", "gfx942", memory=256, bandwidth=6000, link=896, pcie=128, network=400, fp32=163.4,
        tf32=653.7, half=1307.4, fp8=2614.9, int8=2614.9,
        aliases="mi325x-oam mi325x-256gb-hbm3e mi325x-256gb-hbm3e-dlc 74a5 0x74a5", source=MI325X),
    amd("mi300x-192gb", "AMD Instinct MI300X", "gfx942", memory=192, bandwidth=5300, link=896, pcie=128, network=400, fp32=163.4,
        tf32=653.7, half=1307.4, fp8=2614.9, int8=2614.9,
        aliases="mi300x-oam mi300x-o mi300x-vf mi300x-192gb-hbm3 74a1 0x74a1 74b5 0x74b5", source=MI300X),
    amd("mi300a-128gb", "AMD Instinct MI300A", "gfx942", memory=128, bandwidth=5300, link=768, pcie=128, network=100, fp32=122.6,
        tf32=490.3, half=980.6, fp8=1961.2, int8=1961.2, aliases="74a0 0x74a0", source=MI300A),
    amd("mi250x-64gb", "AMD Instinct MI250X", "gfx90a", memory=64, bandwidth=1638, link=400, pcie=64, network=100, fp32=47.9,
        half=191.5, int8=191.5, aliases="mi250x-128gb mi250x-oam 7408 0x7408", source=MI200),
    amd("mi250-64gb", "AMD Instinct MI250", "gfx90a", memory=64, bandwidth=1638, link=300, pcie=64, network=50, fp32=45.3,
        half=181, int8=181, aliases="mi250-128gb mi250-oam mi250x/mi250 740c 0x740c", source=MI200),
    amd("mi210-64gb", "AMD Instinct MI210", "gfx90a", memory=64, bandwidth=1638, link=300, pcie=64, fp32=45.3, half=181, int8=181,
        aliases="740f 0x740f", source=MI200),
    amd("mi100-32gb", "AMD Instinct MI100", "gfx908", memory=32, bandwidth=1229, link=276, pcie=64, fp32=46.1, half=184.6, bf16=92.3,
        int8=184.6, aliases="738c 0x738c", source=MI100),
)
# fmt: on
