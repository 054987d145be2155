// SPDX-License-Identifier: Apache-2.0
//! What a Rust program that reads and sets GPUs asks of NVML, all through nvml-wrapper. Runs under
//! `harpe emulate --gpus 2xA100,V100`; panics at the first answer that is not as expected.
use nvml_wrapper::enum_wrappers::device::*;
use nvml_wrapper::enums::device::{DeviceArchitecture, GpuLockedClocksSetting, SampleValue};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::{Device, Nvml};

fn finds_gpus(nvml: &Nvml) -> Result<(), NvmlError> {
    assert!(nvml.sys_driver_version()?.contains('.'));
    assert!(nvml.sys_nvml_version()?.starts_with("12."));
    assert_eq!(nvml.sys_cuda_driver_version()? / 1000, 12);
    assert_eq!(nvml.device_count()?, 3);
    let names = ["NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-32GB"];
    for (index, name) in (0..).zip(names) {
        let gpu = nvml.device_by_index(index)?;
        assert_eq!((gpu.index()?, gpu.minor_number()?, gpu.name()?), (index, index, name.into()));
        assert_eq!(nvml.device_by_uuid(gpu.uuid()?)?.index()?, index);
        assert_eq!(nvml.device_by_pci_bus_id(gpu.pci_info()?.bus_id)?.index()?, index);
    }
    assert!(matches!(nvml.device_by_index(3), Err(NvmlError::InvalidArg)));
    assert!(matches!(nvml.device_by_uuid("GPU-0"), Err(NvmlError::NotFound)));
    Ok(())
}

fn tells_what_it_is(gpu: &Device) -> Result<(), NvmlError> {
    assert!(matches!(gpu.architecture()?, DeviceArchitecture::Ampere));
    let capability = gpu.cuda_compute_capability()?;
    assert_eq!((capability.major, capability.minor), (8, 0));
    assert!(matches!(gpu.compute_mode()?, ComputeMode::Default));
    assert!(gpu.num_cores()? > 0 && gpu.memory_bus_width()? > 0);
    assert!(gpu.current_pcie_link_gen()? <= gpu.max_pcie_link_gen()?);
    assert_eq!(gpu.max_pcie_link_width()?, 16);
    gpu.pcie_throughput(PcieUtilCounter::Send)?;
    gpu.pcie_replay_counter()?;
    gpu.vbios_version()?;
    gpu.brand()?;
    assert!(!gpu.is_multi_gpu_board()?);
    assert!(gpu.is_ecc_enabled()?.currently_enabled);
    Ok(())
}

fn tells_what_it_does(gpu: &Device) -> Result<(), NvmlError> {
    let (power, limit) = (gpu.power_usage()?, gpu.enforced_power_limit()?);
    assert!(power > 0 && power <= limit);
    assert!((20..90).contains(&gpu.temperature(TemperatureSensor::Gpu)?));
    gpu.temperature_threshold(TemperatureThreshold::Slowdown)?;
    assert!(gpu.utilization_rates()?.gpu <= 100);
    let memory = gpu.memory_info()?;
    assert_eq!(memory.used + memory.free, memory.total);
    assert!(gpu.bar1_memory_info()?.total > 0);
    assert!(gpu.running_compute_processes()?.is_empty());
    assert!(gpu.running_graphics_processes()?.is_empty());
    gpu.encoder_utilization()?;
    gpu.decoder_utilization()?;
    gpu.performance_state()?;
    assert!(!gpu.current_throttle_reasons()?.is_all());
    gpu.supported_throttle_reasons()?;
    assert_eq!(gpu.samples(Sampling::Power, None)?.len(), 1);
    let before = gpu.total_energy_consumption()?;
    std::thread::sleep(std::time::Duration::from_millis(120));
    assert!(gpu.total_energy_consumption()? > before);
    let fields = gpu.field_values_for(&[FieldId(186), FieldId(9999)])?;
    let instant = fields[0].as_ref().unwrap().value.as_ref().unwrap();
    assert!(matches!(instant, SampleValue::U32(power) if *power > 0));
    Ok(())
}

fn lists_clocks(gpu: &Device) -> Result<(), NvmlError> {
    let memory = gpu.supported_memory_clocks()?;
    let clocks = gpu.supported_graphics_clocks(memory[0])?;
    assert_eq!((clocks[0], clocks[clocks.len() - 1]), (1410, 210));
    assert_eq!(gpu.max_clock_info(Clock::Graphics)?, clocks[0]);
    assert_eq!(gpu.max_clock_info(Clock::Memory)?, memory[0]);
    assert!(gpu.clock_info(Clock::SM)? <= clocks[0]);
    gpu.clock(Clock::Graphics, ClockId::Current)?;
    gpu.applications_clock(Clock::Graphics)?;
    Ok(())
}

fn is_set_and_put_back(gpu: &mut Device) -> Result<(), NvmlError> {
    let constraints = gpu.power_management_limit_constraints()?;
    assert_eq!((constraints.min_limit, constraints.max_limit), (100_000, 400_000));
    gpu.set_power_management_limit(250_000)?;
    assert_eq!(gpu.power_management_limit()?, 250_000);
    let too_low = gpu.set_power_management_limit(1);
    assert!(matches!(too_low, Err(NvmlError::InvalidArg)));
    gpu.set_power_management_limit(gpu.power_management_limit_default()?)?;
    gpu.set_persistent(true)?;
    assert!(gpu.is_in_persistent_mode()?);
    gpu.set_persistent(false)?;
    gpu.set_gpu_locked_clocks(GpuLockedClocksSetting::Numeric {
        min_clock_mhz: 705,
        max_clock_mhz: 705,
    })?;
    assert_eq!(gpu.clock_info(Clock::Graphics)?, 705);
    gpu.reset_gpu_locked_clocks()?;
    gpu.set_mem_locked_clocks(1593, 1593)?;
    gpu.reset_mem_locked_clocks()
}

/// An answer is a value or "not supported", also where an emulated GPU lacks something.
fn lacks_politely<T>(result: Result<T, NvmlError>) {
    match result {
        Ok(_) | Err(NvmlError::NotSupported) => (),
        Err(error) => panic!("{error}"),
    }
}

fn main() -> Result<(), NvmlError> {
    let nvml = Nvml::init()?;
    finds_gpus(&nvml)?;
    let mut gpu = nvml.device_by_index(1)?;
    tells_what_it_is(&gpu)?;
    tells_what_it_does(&gpu)?;
    lists_clocks(&gpu)?;
    is_set_and_put_back(&mut gpu)?;
    lacks_politely(gpu.fan_speed(0));
    lacks_politely(gpu.num_fans());
    lacks_politely(gpu.serial());
    lacks_politely(gpu.board_part_number());
    lacks_politely(gpu.irq_num());
    lacks_politely(gpu.link_wrapper_for(0).is_active());
    lacks_politely(gpu.supported_event_types());
    lacks_politely(nvml.create_event_set());
    lacks_politely(nvml.unit_count());
    let mut old = nvml.device_by_index(2)?;
    let refused = old.set_mem_locked_clocks(877, 877);
    assert!(matches!(refused, Err(NvmlError::NotSupported)));
    println!("{}", refused.unwrap_err());
    nvml.shutdown()
}
